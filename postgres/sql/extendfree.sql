-- Gives the keys $1, held by the tokens $2, new leases of $3 milliseconds each, but for
-- those whose row another transaction holds, so that these do not hold up the others.
-- One row for each that is extended or held by another transaction, in any order: its
-- position, whether it was extended, and whether the commit waits for a standby.
WITH want AS (
    SELECT w.key, w.token, w.ms, w.i
    FROM unnest($1::text[], $2::text[], $3::bigint[]) WITH ORDINALITY AS w (key, token, ms, i)
), live AS (
    SELECT w.i
    FROM {table} AS l JOIN want AS w ON l.key = w.key AND l.token = w.token
    WHERE l.expires_at > clock_timestamp()
), free AS (
    SELECT l.key, w.i, w.ms
    FROM {table} AS l JOIN want AS w ON l.key = w.key AND l.token = w.token
    WHERE l.expires_at > clock_timestamp()
      AND (SELECT set_config('client_min_messages', 'warning', true)) IS NOT NULL
    FOR NO KEY UPDATE OF l SKIP LOCKED
), extended AS (
    UPDATE {table} AS l
    SET expires_at = clock_timestamp() + f.ms * interval '1 millisecond'
    FROM free AS f
    WHERE l.key = f.key
    RETURNING f.i
)
SELECT v.i, e.i IS NOT NULL, {synchronous}
FROM live AS v LEFT JOIN extended AS e ON e.i = v.i
