-- Deletes at most $1 rows whose lease has ended, and tells how many. Rows that another
-- transaction holds are left to the next sweep.
WITH ended AS (
    SELECT key
    FROM {table}
    WHERE expires_at <= clock_timestamp()
    LIMIT $1
    FOR UPDATE SKIP LOCKED
), deleted AS (
    DELETE FROM {table} AS l
    USING ended
    WHERE l.key = ended.key AND l.expires_at <= clock_timestamp()
    RETURNING 1
)
SELECT count(*) FROM deleted
