-- Reads the jobs of pg_cron with the name $1 in this database.
SELECT j.schedule::text, j.command::text, j.active FROM cron.job AS j
WHERE j.jobname::text = $1::text AND j.database::text = current_database()::text
