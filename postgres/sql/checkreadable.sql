-- Tells whether the current role may read all of the relations $1.
SELECT coalesce(bool_and(has_table_privilege(c.oid, 'SELECT') AND has_schema_privilege(c.relnamespace, 'USAGE')), false)
FROM pg_class AS c
WHERE c.oid = ANY ($1::bigint[]::oid[])
