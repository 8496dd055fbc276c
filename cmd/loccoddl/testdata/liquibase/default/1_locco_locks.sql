--liquibase formatted sql

-- locco schema for PostgreSQL, version 0 to 1
-- loccoddl postgres -table=locco_locks

--changeset locco:1_locco_locks dbms:postgresql splitStatements:false rollbackSplitStatements:false stripComments:false
CREATE TABLE IF NOT EXISTS "locco_locks" (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    token text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE SEQUENCE IF NOT EXISTS "locco_locks_fence" MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE;
--rollback DROP SEQUENCE IF EXISTS "locco_locks_fence";
--rollback DROP TABLE IF EXISTS "locco_locks";
