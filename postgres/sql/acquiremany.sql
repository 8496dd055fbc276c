-- Takes the keys $1 for the tokens $2 and $3 milliseconds each, all or none, in the
-- order given. Where $4 says so a live lease of the same token is a grant too. $5
-- bounds the wait for a row that another transaction holds. Answers one row: the
-- position of a key that is refused, or else the fences, and whether the commit
-- waits for a standby.
--
-- If somebody was faster at one key the division by zero takes back the others. The lease
-- of a row that is waited for begins after the wait.
WITH want AS (
    SELECT w.key, w.token, w.ms, w.again, w.i
    FROM unnest($1::text[], $2::text[], $3::bigint[], $4::boolean[]) WITH ORDINALITY AS w (key, token, ms, again, i)
), held AS (
    SELECT min(w.i) AS i
    FROM want AS w JOIN {table} AS l ON l.key = w.key
    WHERE l.expires_at > clock_timestamp() AND NOT (w.again AND l.token = w.token)
), granted AS (
    INSERT INTO {table} AS l (key, token, expires_at)
    SELECT w.key, w.token, clock_timestamp() + w.ms * interval '1 millisecond'
    FROM (SELECT * FROM want ORDER BY i) AS w
    WHERE (SELECT i FROM held) IS NULL
      AND (SELECT set_config('lock_timeout', $5, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
    ON CONFLICT (key) DO UPDATE
    SET token = excluded.token,
        expires_at = clock_timestamp() + (SELECT w.ms FROM want AS w WHERE w.key = excluded.key) * interval '1 millisecond'
    WHERE l.expires_at <= clock_timestamp()
       OR l.token = excluded.token AND (SELECT w.again FROM want AS w WHERE w.key = excluded.key)
    RETURNING l.key, {fence} AS fence
), answer AS (
    SELECT (SELECT i FROM held) AS refused, array_agg(g.fence ORDER BY w.i) AS fences, count(*) AS n
    FROM granted AS g JOIN want AS w ON w.key = g.key
)
SELECT refused, fences, {synchronous},
       1 / CASE WHEN refused IS NOT NULL OR n = cardinality($1::text[]) THEN 1 ELSE 0 END
FROM answer
