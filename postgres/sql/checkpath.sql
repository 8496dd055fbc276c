-- Finds the relation $1 in the schemas $2, in their order, as far as the role $3 may use
-- them. One row a schema.
SELECT n.nspname::text, c.oid::bigint
FROM unnest($2::text[]) WITH ORDINALITY AS p (schema, i)
JOIN pg_namespace AS n ON n.nspname = p.schema::name
JOIN pg_class AS c ON c.relnamespace = n.oid AND c.relname = $1::name
WHERE has_schema_privilege($3::name, n.oid, 'USAGE')
ORDER BY p.i
