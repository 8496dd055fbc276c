-- Reads what else there is about the table $1: what hangs on it and may change, refuse
-- or hide a row. $2 is the role, $3 the column that is the key. One row: an object in JSON.
SELECT json_build_object(
    'collation', ( -- of the column that is the key: key, or name of the marks
        SELECT json_build_object(
            'name', coalesce(c.collname, ''),
            'sound', c.collname IN ('C', 'POSIX', 'ucs_basic')
                OR c.collname = 'default' AND d.datcollate IN ('C', 'POSIX'),
            'fuzzy', NOT c.collisdeterministic
        )
        FROM pg_attribute AS a
        JOIN pg_collation AS c ON c.oid = a.attcollation
        JOIN pg_database AS d ON d.datname = current_database()
        WHERE a.attrelid = t.oid AND NOT a.attisdropped AND a.attname = $3::name
    ),
    'triggers', (
        SELECT coalesce(json_agg(json_build_object(
            'name', g.tgname, 'before', g.tgtype & 2 <> 0 AND g.tgtype & 1 <> 0
        ) ORDER BY g.tgname), '[]')
        FROM pg_trigger AS g
        WHERE g.tgrelid = t.oid AND NOT g.tgisinternal AND g.tgenabled <> 'D'
    ),
    'rules', (
        SELECT coalesce(json_agg(r.rulename ORDER BY r.rulename), '[]')
        FROM pg_rewrite AS r
        WHERE r.ev_class = t.oid AND r.rulename <> '_RETURN' AND r.ev_enabled <> 'D'
    ),
    'constraints', (
        SELECT coalesce(json_agg(json_build_object(
            'name', k.conname, 'kind', k.contype::text, 'table', k.conrelid::regclass::text, 'here', k.conrelid = t.oid
        ) ORDER BY k.conname), '[]')
        FROM pg_constraint AS k
        WHERE k.conrelid = t.oid AND k.contype IN ('c', 'f', 'x') OR k.confrelid = t.oid
    ),
    'uniques', ( -- those that are not the key
        SELECT coalesce(json_agg(i.indexrelid::regclass::text ORDER BY i.indexrelid::regclass::text), '[]')
        FROM pg_index AS i
        LEFT JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = t.oid AND i.indisunique
          AND NOT (i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND a.attname = $3::name)
    ),
    'children', EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhparent = t.oid),
    'parents', EXISTS (SELECT FROM pg_inherits AS h WHERE h.inhrelid = t.oid),
    'row_security', t.relrowsecurity,
    'row_security_applies', t.relrowsecurity AND NOT o.rolsuper AND NOT o.rolbypassrls
        AND (t.relforcerowsecurity OR NOT pg_has_role(o.oid, t.relowner, 'USAGE'))
)::text
FROM pg_class AS t, pg_roles AS o
WHERE t.oid = $1::bigint::oid AND o.rolname = $2::name
