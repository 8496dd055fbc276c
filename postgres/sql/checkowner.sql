-- Tells of the relation $1 whether the role $2 can act as its owner, what all roles may
-- do with it, and, of a sequence, which table it ends with. One row.
SELECT
    pg_has_role(o.oid, c.relowner, 'USAGE'),
    ARRAY(SELECT DISTINCT x.privilege_type FROM aclexplode(c.relacl) AS x WHERE x.grantee = 0 ORDER BY 1)::text[],
    coalesce((
        SELECT d.refobjid::regclass::text
        FROM pg_depend AS d
        WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid
          AND d.refclassid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
        LIMIT 1
    ), '')
FROM pg_class AS c, pg_roles AS o
WHERE c.oid = $1::bigint::oid AND o.rolname = $2::name
