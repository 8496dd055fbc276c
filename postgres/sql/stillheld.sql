-- Tells whether the token $2 holds the key $1, and keeps it from passing to somebody
-- else until the end of the transaction, even if the lease ends before.
SELECT expires_at > clock_timestamp()
FROM {table}
WHERE key = $1 AND token = $2
FOR SHARE
