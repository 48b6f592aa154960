-- FunctionList reads Gatepost's functions, with all that decides what a call does; locks
-- says whether the owner may lock a lease.
-- name: FunctionList :many
SELECT
    p.proname::text AS name,
    pg_get_function_identity_arguments(p.oid)::text AS arguments,
    l.lanname::text AS language,
    (CASE p.provolatile WHEN 'i' THEN 'IMMUTABLE' WHEN 's' THEN 'STABLE' ELSE 'VOLATILE' END)::text AS volatility,
    p.proisstrict AS strict,
    p.prosecdef AS definer,
    coalesce(array_to_string(p.proconfig, E'\n'), '')::text AS config,
    coalesce(p.prosrc, '')::text AS body,
    (p.prokind = 'f' AND p.proparallel = 'u' AND NOT p.proleakproof AND p.prosqlbody IS NULL)::boolean AS plain,
    pg_get_userbyid(p.proowner)::text AS owner,
    coalesce(pg_get_userbyid(t.relowner), '')::text AS tables_owner,
    (t.oid IS NULL OR (
        has_schema_privilege(p.proowner, n.oid, 'USAGE')
        AND has_table_privilege(p.proowner, t.oid, 'SELECT')
        AND has_any_column_privilege(p.proowner, t.oid, 'UPDATE')
    ))::boolean AS locks,
    EXISTS (
        SELECT
        FROM aclexplode(coalesce(p.proacl, acldefault('f', p.proowner))) AS g
        WHERE g.grantee = 0
    )::boolean AS everybody
FROM pg_catalog.pg_proc AS p
JOIN pg_catalog.pg_namespace AS n ON n.oid = p.pronamespace
JOIN pg_catalog.pg_language AS l ON l.oid = p.prolang
LEFT JOIN pg_catalog.pg_class AS t ON t.relnamespace = n.oid AND t.relname = 'leases' AND t.relkind = 'r'
WHERE n.nspname = 'gatepost'
ORDER BY p.proname, 2;

-- GuardImpostors reads the triggers that have the name of a guard's, and neither its
-- functions nor its arguments.
-- name: GuardImpostors :many
SELECT
    cn.nspname::text AS table_schema,
    c.relname::text AS table_name,
    t.tgname::text AS name,
    (pn.nspname::text || '.' || p.proname::text)::text AS function
FROM pg_catalog.pg_trigger AS t
JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.pronamespace
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS cn ON cn.oid = c.relnamespace
WHERE t.tgname IN ('gatepost_guard', 'gatepost_guard_insert', 'gatepost_guard_update', 'gatepost_guard_delete')
    AND NOT t.tgisinternal
    AND (pn.nspname <> 'gatepost' OR p.proname NOT IN ('guard_row', 'guard_statement') OR t.tgnargs <> 2)
    AND t.tgparentid = 0
ORDER BY 1, 2, 3;

-- GuardOwned reads the guarded tables that a role owns, by itself or as a member.
-- name: GuardOwned :many
SELECT DISTINCT (cn.nspname::text || '.' || c.relname::text)::text AS table_name
FROM pg_catalog.pg_trigger AS t
JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.pronamespace
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS cn ON cn.oid = c.relnamespace
WHERE pn.nspname = 'gatepost'
    AND p.proname IN ('guard_row', 'guard_statement')
    AND pg_has_role(@role::text, c.relowner, 'USAGE')
ORDER BY 1;

-- GuardSubscribed reads the guarded tables that a subscription of logical replication
-- writes to, past their guards.
-- name: GuardSubscribed :many
SELECT DISTINCT (cn.nspname::text || '.' || c.relname::text)::text AS table_name, s.subname::text AS subscription
FROM pg_catalog.pg_trigger AS t
JOIN pg_catalog.pg_proc AS p ON p.oid = t.tgfoid
JOIN pg_catalog.pg_namespace AS pn ON pn.oid = p.pronamespace
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS cn ON cn.oid = c.relnamespace
JOIN pg_catalog.pg_subscription_rel AS r ON r.srrelid = c.oid
JOIN pg_catalog.pg_subscription AS s ON s.oid = r.srsubid
WHERE pn.nspname = 'gatepost'
    AND p.proname IN ('guard_row', 'guard_statement')
    AND t.tgenabled = 'O'
ORDER BY 1, 2;

-- TriggersOffGrants reads the roles that may set session_replication_role without being
-- superusers; PUBLIC is empty. PostgreSQL 15 and later.
-- name: TriggersOffGrants :many
SELECT coalesce(r.rolname::text, '')::text AS role
FROM pg_catalog.pg_parameter_acl AS p
CROSS JOIN LATERAL aclexplode(p.paracl) AS g
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = g.grantee
WHERE p.parname = 'session_replication_role'
    AND g.privilege_type = 'SET'
    AND r.rolsuper IS NOT TRUE
ORDER BY 1;
