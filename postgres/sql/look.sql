-- Reads what there is of the table $2, the sequence $3 and the table of marks $4, in the
-- schema $1 or, if that is null, where the search path finds them; and what the role $5
-- may do with them, or the current one if $5 is null. One row: an object in JSON with
-- the members table, sequence and marks, as far as they exist.
--
-- It goes by the catalog, as to_regclass fails without the right to use the schema.
WITH want (what, name) AS (
    VALUES ('table', $2::name), ('sequence', $3::name), ('marks', $4::name)
), role AS (
    SELECT coalesce($5::name, current_user) AS name
), found AS (
    SELECT w.what, c.*, n.nspname
    FROM want AS w
    JOIN pg_class AS c ON c.relname = w.name
    JOIN pg_namespace AS n ON n.oid = c.relnamespace
    WHERE CASE WHEN $1::name IS NULL THEN pg_table_is_visible(c.oid) ELSE n.nspname = $1::name END
)
SELECT coalesce(json_object_agg(f.what, json_build_object(
    'oid', f.oid::bigint,
    'schema', f.nspname,
    'kind', f.relkind::text,
    'persistence', f.relpersistence::text,
    'columns', (
        SELECT coalesce(json_agg(json_build_object(
            'name', a.attname,
            'type', format_type(a.atttypid, a.atttypmod),
            'not_null', a.attnotnull,
            'filled', a.atthasdef OR a.attidentity <> ''
        ) ORDER BY a.attnum), '[]')
        FROM pg_attribute AS a
        WHERE a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped AND f.relkind <> 'S'
    ),
    'unique', ( -- the columns that ON CONFLICT takes for a key
        SELECT coalesce(json_agg(a.attname), '[]')
        FROM pg_index AS i
        JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[0]
        WHERE i.indrelid = f.oid AND i.indisunique AND i.indisvalid AND i.indimmediate
          AND i.indpred IS NULL AND i.indexprs IS NULL AND i.indnkeyatts = 1
    ),
    'usage', has_schema_privilege(r.name, f.relnamespace, 'USAGE'),
    'rights', (
        SELECT coalesce(json_agg(p), '[]')
        FROM unnest(CASE WHEN f.relkind = 'S' THEN '{USAGE,UPDATE}'::text[]
                    ELSE '{SELECT,INSERT,UPDATE,DELETE,TRUNCATE,REFERENCES,TRIGGER}'::text[] END) AS p
        WHERE CASE
            WHEN f.relkind = 'S' THEN has_sequence_privilege(r.name, f.oid, p)
            WHEN p IN ('SELECT', 'INSERT', 'UPDATE') THEN has_table_privilege(r.name, f.oid, p) OR (
                SELECT bool_and(has_column_privilege(r.name, f.oid, a.attnum, p))
                FROM pg_attribute AS a
                WHERE a.attrelid = f.oid AND a.attnum > 0 AND NOT a.attisdropped
            )
            ELSE has_table_privilege(r.name, f.oid, p)
        END
    ),
    'sequence', (
        SELECT json_build_object(
            'type', format_type(s.seqtypid, NULL),
            'increment', s.seqincrement,
            'cache', s.seqcache,
            'cycle', s.seqcycle,
            'minimum', s.seqmin,
            'maximum', s.seqmax
        )
        FROM pg_sequence AS s
        WHERE s.seqrelid = f.oid
    )
)), '{}')::text
FROM found AS f, role AS r
