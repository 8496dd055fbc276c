-- Reads what there is of the table $1 and the sequence $2, both quoted names. One row.
SELECT
    t.oid IS NOT NULL AS has_table,
    coalesce(t.relkind::text, '') AS kind,
    coalesce(t.relpersistence::text, '') AS persistence,
    coalesce(t.relrowsecurity, false) AS row_security,
    coalesce((
        SELECT array_agg(a.attname || ' ' || format_type(a.atttypid, a.atttypmod) || CASE WHEN a.attnotnull THEN ' not null' ELSE '' END
                         ORDER BY a.attnum)
        FROM pg_attribute AS a
        WHERE a.attrelid = t.oid AND a.attnum > 0 AND NOT a.attisdropped
    ), '{}')::text[] AS columns,
    EXISTS (
        SELECT FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = t.oid AND i.indisunique AND i.indisvalid AND i.indimmediate AND i.indpred IS NULL
          AND i.indexprs IS NULL AND i.indnkeyatts = 1 AND a.attname = 'key'
    ) AS has_unique_key,
    s.oid IS NOT NULL AS has_sequence,
    coalesce(s.relkind::text, '') AS sequence_kind,
    coalesce(q.seqincrement, 0) AS increment,
    coalesce(q.seqcache, 0) AS cache,
    coalesce(q.seqcycle, false) AS cycle,
    coalesce(q.seqmax, 0) AS maximum
FROM (SELECT to_regclass($1) AS table_oid, to_regclass($2) AS sequence_oid) AS n
LEFT JOIN pg_class AS t ON t.oid = n.table_oid
LEFT JOIN pg_class AS s ON s.oid = n.sequence_oid
LEFT JOIN pg_sequence AS q ON q.seqrelid = s.oid
