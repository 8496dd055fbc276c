-- Reads what the server is set to for sessions of the role $1, or of the current one if
-- $1 is null, in this database. No row if there is no such role.
SELECT
    r.rolname::text,
    r.rolsuper,
    coalesce(p.search_path, CASE WHEN mine.source IN ('default', 'configuration file') THEN mine.reset_val ELSE mine.boot_val END),
    coalesce(p.synchronous_commit, current_setting('synchronous_commit')),
    current_setting('fsync'),
    current_setting('full_page_writes')
FROM pg_roles AS r
JOIN pg_settings AS mine ON mine.name = 'search_path'
CROSS JOIN LATERAL (
    SELECT
        (array_agg(s.value ORDER BY s.by_role DESC, s.by_database DESC) FILTER (WHERE s.name = 'search_path'))[1] AS search_path,
        (array_agg(s.value ORDER BY s.by_role DESC, s.by_database DESC) FILTER (WHERE s.name = 'synchronous_commit'))[1] AS synchronous_commit
    FROM (
        SELECT
            d.setrole <> 0 AS by_role, d.setdatabase <> 0 AS by_database,
            lower(split_part(c, '=', 1)) AS name, substr(c, strpos(c, '=') + 1) AS value
        FROM pg_db_role_setting AS d, unnest(d.setconfig) AS c
        WHERE d.setrole IN (0, r.oid)
          AND d.setdatabase IN (0, (SELECT b.oid FROM pg_database AS b WHERE b.datname = current_database()))
    ) AS s
) AS p
WHERE r.rolname = coalesce($1::name, current_user)
