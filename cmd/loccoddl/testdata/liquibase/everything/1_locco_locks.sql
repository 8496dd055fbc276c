--liquibase formatted sql

-- locco schema for PostgreSQL, version 0 to 1
-- loccoddl postgres -table=locco_locks '-schema=my schema' -role=app-user '-sweep=*/10 * * * *' -marks

--changeset locco:1_locco_locks dbms:postgresql splitStatements:false rollbackSplitStatements:false stripComments:false
CREATE TABLE IF NOT EXISTS "my schema"."locco_locks" (
    key text COLLATE "C" NOT NULL PRIMARY KEY,
    token text NOT NULL,
    expires_at timestamptz NOT NULL
);
CREATE SEQUENCE IF NOT EXISTS "my schema"."locco_locks_fence" MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE;
CREATE TABLE IF NOT EXISTS "my schema"."locco_locks_marks" (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    fence bigint NOT NULL
);
GRANT USAGE ON SCHEMA "my schema" TO "app-user";
GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "my schema"."locco_locks" TO "app-user";
GRANT USAGE ON SEQUENCE "my schema"."locco_locks_fence" TO "app-user";
GRANT SELECT, INSERT, UPDATE ON TABLE "my schema"."locco_locks_marks" TO "app-user";
SELECT cron.schedule(E'my schema.locco_locks_sweep', E'*/10 * * * *', E'WITH ended AS ( SELECT key FROM "my schema"."locco_locks" WHERE expires_at <= clock_timestamp() LIMIT 10000 FOR UPDATE SKIP LOCKED ), deleted AS ( DELETE FROM "my schema"."locco_locks" AS l USING ended WHERE l.key = ended.key AND l.expires_at <= clock_timestamp() RETURNING 1 ) SELECT count(*) FROM deleted');
--rollback SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = E'my schema.locco_locks_sweep' AND database = current_database();
--rollback DROP TABLE IF EXISTS "my schema"."locco_locks_marks";
--rollback DROP SEQUENCE IF EXISTS "my schema"."locco_locks_fence";
--rollback DROP TABLE IF EXISTS "my schema"."locco_locks";
