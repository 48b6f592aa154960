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

-- RolePrivileges says which privileges on Gatepost's tables a role has, of those asked
-- for: tables and privileges are pairs. A table that isn't there is left out.
-- name: RolePrivileges :many
SELECT
    c.relname::text AS table_name,
    asked.privilege::text AS privilege,
    has_table_privilege(@role::text, c.oid, asked.privilege)::boolean AS granted
FROM (
    SELECT unnest(@tables::text[]) AS table_name, unnest(@privileges::text[]) AS privilege
) AS asked
JOIN pg_catalog.pg_class AS c ON c.relname = asked.table_name
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
ORDER BY c.relname, asked.privilege;

-- RoleUsesSchema says whether a role may use the schema.
-- name: RoleUsesSchema :one
SELECT coalesce(bool_or(has_schema_privilege(@role::text, n.oid, 'USAGE')), false)::boolean AS granted
FROM pg_catalog.pg_namespace AS n
WHERE n.nspname = 'gatepost';
