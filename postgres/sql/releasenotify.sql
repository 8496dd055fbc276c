-- Frees the key $1 if the token $2 holds it, and says so if somebody waits: whoever
-- waits shares the advisory lock $4 and listens to the channel that has its number.
-- $3 bounds the wait for a row that another transaction holds. Answers whether the
-- lease was live, or no row.
--
-- The advisory lock is kept until the commit, so that one who comes to wait
-- meanwhile looks after it.
DELETE FROM {table}
WHERE key = $1 AND token = $2
  AND (SELECT set_config('lock_timeout', $3, true)) IS NOT NULL
RETURNING CASE
    WHEN expires_at <= clock_timestamp() THEN false
    WHEN pg_try_advisory_xact_lock($4::bigint) THEN true
    ELSE pg_notify('locco_' || to_hex($4::bigint), '')::text = ''
END
