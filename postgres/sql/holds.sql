-- Tells whether the token $2 holds the key $1, and whether this server is a standby.
SELECT EXISTS (
    SELECT FROM {table} WHERE key = $1 AND token = $2 AND expires_at > clock_timestamp()
), pg_is_in_recovery()
