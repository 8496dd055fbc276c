-- locco schema for PostgreSQL, version 0 to 1
-- loccoddl postgres -table=locco_locks '-schema=my schema' -role=app-user '-sweep=*/10 * * * *' -marks

SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = E'my schema.locco_locks_sweep' AND database = current_database();
DROP TABLE IF EXISTS "my schema"."locco_locks_marks";
DROP SEQUENCE IF EXISTS "my schema"."locco_locks_fence";
DROP TABLE IF EXISTS "my schema"."locco_locks";
