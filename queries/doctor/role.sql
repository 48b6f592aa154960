-- RoleAbout says what a role may do whatever it is granted.
-- name: RoleAbout :one
SELECT
    coalesce(r.rolsuper, false)::boolean AS superuser,
    EXISTS (
        SELECT
        FROM pg_catalog.pg_class AS c
        JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
        WHERE n.nspname = 'gatepost'
            AND c.relkind = 'r'
            AND pg_has_role(r.oid, c.relowner, 'USAGE')
    )::boolean AS owns
FROM pg_catalog.pg_roles AS r
WHERE r.rolname = @role::text;

-- RoleFunctions says which of Gatepost's functions a role may call, of those named.
-- name: RoleFunctions :many
SELECT
    p.proname::text AS name,
    pg_get_function_identity_arguments(p.oid)::text AS arguments,
    has_function_privilege(@role::text, p.oid, 'EXECUTE')::boolean AS granted
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
WHERE n.nspname = 'gatepost'
    AND p.proname = ANY (@names::text[])
ORDER BY p.proname, 2;

-- RoleGranted reads what is granted in Gatepost's schema to a role, or to one whose
-- privileges it has, but not to everybody: on the schema, where table_name is empty, on
-- tables, and on columns.
-- name: RoleGranted :many
SELECT
    coalesce(g.table_name, '')::text AS table_name,
    coalesce(g.column_name, '')::text AS column_name,
    g.privilege::text AS privilege,
    r.rolname::text AS grantee
FROM (
    SELECT NULL::name AS table_name, NULL::name AS column_name, x.privilege_type AS privilege, x.grantee, n.nspowner AS owner
    FROM pg_catalog.pg_namespace AS n
    CROSS JOIN LATERAL aclexplode(n.nspacl) AS x (grantor, grantee, privilege_type, is_grantable)
    WHERE n.nspname = 'gatepost'
    UNION ALL
    SELECT c.relname, NULL, x.privilege_type, x.grantee, c.relowner
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL aclexplode(c.relacl) AS x (grantor, grantee, privilege_type, is_grantable)
    WHERE n.nspname = 'gatepost'
        AND c.relkind = 'r'
    UNION ALL
    SELECT c.relname, a.attname, x.privilege_type, x.grantee, c.relowner
    FROM pg_catalog.pg_attribute AS a
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL aclexplode(a.attacl) AS x (grantor, grantee, privilege_type, is_grantable)
    WHERE n.nspname = 'gatepost'
        AND c.relkind = 'r'
        AND NOT a.attisdropped
) AS g
JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
WHERE g.grantee <> g.owner
    AND pg_has_role(@role::text, g.grantee, 'USAGE')
ORDER BY r.rolname, g.table_name NULLS FIRST, g.privilege, g.column_name NULLS FIRST;

-- RolePrivileges says which privileges on Gatepost's tables a role has, of those asked
-- for: tables, privileges and columns go together, and an empty column is the whole
-- table. A table or a column that isn't there is left out.
-- name: RolePrivileges :many
SELECT
    asked.table_name::text AS table_name,
    asked.privilege::text AS privilege,
    asked.column_name::text AS column_name,
    (CASE
        WHEN a.attnum IS NULL THEN has_table_privilege(@role::text, c.oid, asked.privilege)
        ELSE has_column_privilege(@role::text, c.oid, a.attnum, asked.privilege)
    END)::boolean AS granted
FROM (
    SELECT
        unnest(@tables::text[]) AS table_name,
        unnest(@privileges::text[]) AS privilege,
        unnest(@columns::text[]) AS column_name
) AS asked
JOIN pg_catalog.pg_class AS c ON c.relname = asked.table_name
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid AND a.attname = asked.column_name AND NOT a.attisdropped
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
    AND (asked.column_name = '' OR a.attnum IS NOT NULL)
ORDER BY c.relname, asked.privilege, a.attnum;

-- RoleUsesSchema says whether a role may use the schema.
-- name: RoleUsesSchema :one
SELECT coalesce(bool_or(has_schema_privilege(@role::text, n.oid, 'USAGE')), false)::boolean AS granted
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = 'gatepost';
