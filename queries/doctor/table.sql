-- ColumnList reads the columns of Gatepost's tables. A type outside pg_catalog is
-- named with its schema, whatever search_path is.
-- name: ColumnList :many
SELECT
    c.relname::text AS table_name,
    a.attname::text AS name,
    (CASE WHEN tn.nspname = 'pg_catalog' THEN '' ELSE tn.nspname::text || '.' END || t.typname::text)::text AS type,
    a.attnotnull AS not_null
FROM pg_catalog.pg_attribute AS a
JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
JOIN pg_catalog.pg_namespace AS tn ON tn.oid = t.typnamespace
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
    AND a.attnum > 0
    AND NOT a.attisdropped
ORDER BY c.relname, a.attnum;

-- ConstraintList reads the checks and foreign keys of Gatepost's tables, and the checks
-- of its domains, with their definitions as the server writes them: whether they hold for
-- all rows, and whether nothing of them is switched off.
-- name: ConstraintList :many
SELECT
    coalesce(c.relname::text, t.typname::text)::text AS owner,
    k.conname::text AS name,
    (k.contypid <> 0)::boolean AS of_domain,
    pg_get_constraintdef(k.oid)::text AS definition,
    (
        k.convalidated
        AND NOT EXISTS (
            SELECT
            FROM pg_catalog.pg_trigger AS g
            WHERE g.tgconstraint = k.oid
                AND g.tgenabled NOT IN ('O', 'A')
        )
    )::boolean AS holds
FROM pg_catalog.pg_constraint AS k
JOIN pg_catalog.pg_namespace AS n ON n.oid = k.connamespace
LEFT JOIN pg_catalog.pg_class AS c ON c.oid = k.conrelid
LEFT JOIN pg_catalog.pg_type AS t ON t.oid = k.contypid
WHERE n.nspname = 'gatepost'
    AND k.contype IN ('c', 'f')
ORDER BY 1, 2;

-- GrantList reads what PUBLIC may do with Gatepost's tables, or columns of them, beyond
-- reading; as a REVOKE names it.
-- name: GrantList :many
SELECT g.table_name::text AS table_name, string_agg(g.privilege, ', ' ORDER BY g.privilege)::text AS privileges
FROM (
    SELECT c.relname AS table_name, x.privilege_type AS privilege
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL aclexplode(c.relacl) AS x (grantor, grantee, privilege_type, is_grantable)
    WHERE n.nspname = 'gatepost'
        AND c.relkind = 'r'
        AND x.grantee = 0
        AND x.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'TRIGGER')
    UNION ALL
    SELECT c.relname, x.privilege_type || ' (' || quote_ident(a.attname) || ')'
    FROM pg_catalog.pg_attribute AS a
    JOIN pg_catalog.pg_class AS c ON c.oid = a.attrelid
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    CROSS JOIN LATERAL aclexplode(a.attacl) AS x (grantor, grantee, privilege_type, is_grantable)
    WHERE n.nspname = 'gatepost'
        AND c.relkind = 'r'
        AND NOT a.attisdropped
        AND x.grantee = 0
        AND x.privilege_type IN ('INSERT', 'UPDATE')
) AS g
GROUP BY g.table_name
ORDER BY g.table_name;

-- IndexList reads the indexes of Gatepost's tables: their key columns, in order, where
-- an expression has no name; and what else they hold.
-- name: IndexList :many
SELECT
    c.relname::text AS table_name,
    x.relname::text AS name,
    i.indisunique AS is_unique,
    i.indimmediate AS immediate,
    (i.indisvalid AND i.indisready AND i.indislive)::boolean AS valid,
    (i.indpred IS NOT NULL)::boolean AS partial,
    (i.indexprs IS NOT NULL)::boolean AS expression,
    (i.indnatts > i.indnkeyatts)::boolean AS including,
    ARRAY(
        SELECT coalesce(a.attname::text, '')
        FROM generate_series(1, i.indnkeyatts::integer) AS k (n)
        LEFT JOIN pg_catalog.pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = i.indkey[k.n - 1]
        ORDER BY k.n
    )::text[] AS columns
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_class AS x ON x.oid = i.indexrelid
JOIN pg_catalog.pg_class AS c ON c.oid = i.indrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
ORDER BY c.relname, x.relname;

-- RuleList reads the rewrite rules on Gatepost's tables.
-- name: RuleList :many
SELECT c.relname::text AS table_name, r.rulename::text AS name
FROM pg_catalog.pg_rewrite AS r
JOIN pg_catalog.pg_class AS c ON c.oid = r.ev_class
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
ORDER BY c.relname, r.rulename;

-- TableList reads what kind of tables Gatepost's are. An age is that of the table or of
-- its TOAST table, in transactions or sets of them.
-- name: TableList :many
SELECT
    c.relname::text AS name,
    c.relkind::text AS kind,
    c.relpersistence::text AS persistence,
    c.relrowsecurity AS row_security,
    coalesce(c.reloptions, '{}')::text[] AS options,
    greatest(age(c.relfrozenxid), age(t.relfrozenxid))::bigint AS xids,
    greatest(mxid_age(c.relminmxid), mxid_age(t.relminmxid))::bigint AS multixacts
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN pg_catalog.pg_class AS t ON t.oid = c.reltoastrelid
WHERE n.nspname = 'gatepost'
    AND c.relkind IN ('r', 'p', 'v', 'm', 'f')
ORDER BY c.relname;

-- TableUse reads what the statistics count of Gatepost's tables.
-- name: TableUse :many
SELECT
    s.relname::text AS name,
    s.n_tup_upd::bigint AS updates,
    s.n_tup_hot_upd::bigint AS hot_updates,
    s.n_tup_del::bigint AS deletes,
    s.n_live_tup::bigint AS live,
    s.n_dead_tup::bigint AS dead
FROM pg_catalog.pg_stat_all_tables AS s
WHERE s.schemaname = 'gatepost'
ORDER BY s.relname;

-- TriggerList reads the triggers on Gatepost's tables, those of constraints aside, with
-- their definitions as the server writes them. Those that rewrite are BEFORE ... FOR EACH ROW.
-- name: TriggerList :many
SELECT
    c.relname::text AS table_name,
    t.tgname::text AS name,
    t.tgenabled::text AS enabled,
    (t.tgtype & 3 = 3)::boolean AS rewrites,
    pg_get_triggerdef(t.oid)::text AS definition
FROM pg_catalog.pg_trigger AS t
JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
WHERE n.nspname = 'gatepost'
    AND c.relkind = 'r'
    AND NOT t.tgisinternal
ORDER BY c.relname, t.tgname;
