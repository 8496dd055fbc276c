-- Finds the table of the jobs of pg_cron. No row if there is none.
SELECT c.oid::bigint
FROM pg_class AS c
JOIN pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'cron' AND c.relname = 'job'
