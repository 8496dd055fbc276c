-- Frees the key $1 if the token $2 holds it. $3 bounds the wait for a row that another
-- transaction holds. Answers whether the lease was live, or no row.
DELETE FROM {table}
WHERE key = $1 AND token = $2
  AND (SELECT set_config('lock_timeout', $3, true)) IS NOT NULL
RETURNING expires_at > clock_timestamp()
