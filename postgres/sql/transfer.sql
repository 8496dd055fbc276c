-- Hands the key $1 from the token $2 to the token $3 for $4 milliseconds. With $5 a
-- live lease of the token $3 is a grant too. $6 bounds the wait for a row that another
-- transaction holds. Answers the fence (1 without one) and whether the commit waits
-- for a standby, or no row.
UPDATE {table}
SET token = $3, expires_at = clock_timestamp() + $4::bigint * interval '1 millisecond'
WHERE key = $1 AND (token = $2 OR $5 AND token = $3) AND expires_at > clock_timestamp()
  AND (SELECT set_config('lock_timeout', $6, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
RETURNING {fence}, {synchronous}
