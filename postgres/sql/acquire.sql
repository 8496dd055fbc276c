-- Takes the key $1 for the token $2 and $3 milliseconds if it is free. With $4 a
-- live lease of the same token is a grant too. $5 bounds the wait for a row that
-- another transaction holds; and the warning of a commit that did not wait for its standby
-- is not to be kept from us. Answers one row: the fence of a grant (1 without one), or
-- the milliseconds that the lease which refuses it still runs, negated; and whether the
-- commit waits for a standby. It answers none if somebody was faster, and then has to be
-- asked again.
--
-- A live lease is seen by "held" and nothing is written, locked or drawn. Nor is the row
-- of somebody who was faster: of many who want a key that has become free, one inserts
-- it, and the others do nothing when it commits. If they locked its row, the holder's
-- release would wait for the commit of each.
--
-- The fence is drawn in RETURNING, when the row is ours: in the select it would be drawn
-- before the wait for the row, and could be older than that of the grant that is waited for.
WITH held AS (
    SELECT l.expires_at
    FROM {table} AS l
    WHERE l.key = $1 AND l.expires_at > clock_timestamp() AND NOT ($4 AND l.token = $2)
), ended AS (
    UPDATE {table} AS l
    SET token = $2, expires_at = clock_timestamp() + $3::bigint * interval '1 millisecond'
    WHERE l.key = $1 AND (l.expires_at <= clock_timestamp() OR $4 AND l.token = $2)
      AND (SELECT set_config('lock_timeout', $5, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
    RETURNING {fence} AS fence
), absent AS (
    INSERT INTO {table} AS l (key, token, expires_at)
    SELECT $1, $2, clock_timestamp() + $3::bigint * interval '1 millisecond'
    WHERE NOT EXISTS (SELECT FROM {table} AS l WHERE l.key = $1)
      AND (SELECT set_config('lock_timeout', $5, true) || set_config('client_min_messages', 'warning', true)) IS NOT NULL
    ON CONFLICT (key) DO NOTHING
    RETURNING {fence} AS fence
)
SELECT fence AS answer, {synchronous} AS synchronous FROM absent
UNION ALL
SELECT fence, {synchronous} FROM ended
UNION ALL
SELECT -greatest(1, ceil(extract(epoch FROM expires_at - clock_timestamp()) * 1000))::bigint, false FROM held
