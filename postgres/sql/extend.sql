-- Gives the key $1 a new lease of $3 milliseconds if the token $2 holds it. $4 bounds
-- the wait for a row that another transaction holds. Answers a row if it does.
UPDATE {table}
SET expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
WHERE key = $1 AND token = $2 AND expires_at > clock_timestamp()
  AND (SELECT set_config('lock_timeout', $4, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
RETURNING {synchronous}
