-- locco schema for PostgreSQL, version 0 to 1
-- loccoddl postgres -table=locco_locks

DROP SEQUENCE IF EXISTS "locco_locks_fence";
DROP TABLE IF EXISTS "locco_locks";
