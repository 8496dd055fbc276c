--liquibase formatted sql

-- locco schema for PostgreSQL, version 1 to 0
-- loccoddl postgres -table=locco_locks '-schema=my schema' -role=app-user '-sweep=*/10 * * * *' -marks

--changeset locco:1_locco_locks dbms:postgresql splitStatements:false rollbackSplitStatements:false stripComments:false
SELECT cron.unschedule(jobid) FROM cron.job WHERE jobname = E'my schema.locco_locks_sweep' AND database = current_database();
DROP TABLE IF EXISTS "my schema"."locco_locks_marks";
DROP SEQUENCE IF EXISTS "my schema"."locco_locks_fence";
DROP TABLE IF EXISTS "my schema"."locco_locks";
--rollback CREATE TABLE IF NOT EXISTS "my schema"."locco_locks" (
--rollback     key text COLLATE "C" NOT NULL PRIMARY KEY,
--rollback     token text NOT NULL,
--rollback     expires_at timestamptz NOT NULL
--rollback );
--rollback CREATE SEQUENCE IF NOT EXISTS "my schema"."locco_locks_fence" MINVALUE 1 MAXVALUE 9007199254740991 CACHE 1 NO CYCLE;
--rollback CREATE TABLE IF NOT EXISTS "my schema"."locco_locks_marks" (
--rollback     name text COLLATE "C" NOT NULL PRIMARY KEY,
--rollback     fence bigint NOT NULL
--rollback );
--rollback GRANT USAGE ON SCHEMA "my schema" TO "app-user";
--rollback GRANT SELECT, INSERT, UPDATE, DELETE ON TABLE "my schema"."locco_locks" TO "app-user";
--rollback GRANT USAGE ON SEQUENCE "my schema"."locco_locks_fence" TO "app-user";
--rollback GRANT SELECT, INSERT, UPDATE ON TABLE "my schema"."locco_locks_marks" TO "app-user";
--rollback SELECT cron.schedule(E'my schema.locco_locks_sweep', E'*/10 * * * *', E'WITH ended AS ( SELECT key FROM "my schema"."locco_locks" WHERE expires_at <= clock_timestamp() LIMIT 10000 FOR UPDATE SKIP LOCKED ), deleted AS ( DELETE FROM "my schema"."locco_locks" AS l USING ended WHERE l.key = ended.key AND l.expires_at <= clock_timestamp() RETURNING 1 ) SELECT count(*) FROM deleted');
