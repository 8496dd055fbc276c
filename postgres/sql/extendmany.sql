-- Gives the keys $1, held by the tokens $2, new leases of $3 milliseconds each. $4
-- bounds the wait for a row that another transaction holds. One row for each that is
-- extended, in any order: its position, and whether the commit waits for a standby.
UPDATE {table} AS l
SET expires_at = clock_timestamp() + w.ms * interval '1 millisecond'
FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (key, token, ms, i)
WHERE l.key = w.key AND l.token = w.token AND l.expires_at > clock_timestamp()
  AND (SELECT set_config('lock_timeout', $4, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
RETURNING w.i, {synchronous}
