-- GuardAdd puts a guard on a table: see gatepost.guard_table.
-- name: GuardAdd :exec
SELECT gatepost.guard_table(to_regclass(@relation::text), sqlc.narg(lease)::text, sqlc.narg(lease_column)::name);

-- GuardList reads the guards from the triggers, which are the truth: they follow a table
-- that is renamed, go with one that is dropped, and come with one that is restored. One
-- row a guard, or one a hole in it: unguarded, a partition or a child that has no guard of
-- its own; disabled, triggers that don't fire; rows, triggers for rows that are missing;
-- column, which isn't there any more. Partitions and children are their parent's.
-- name: GuardList :many
WITH RECURSIVE guard AS MATERIALIZED (
    SELECT
        t.tgrelid AS oid,
        t.tgargs AS args,
        convert_from(substring(t.tgargs FROM 1 FOR position('\x00'::bytea IN t.tgargs) - 1), getdatabaseencoding()) AS kind,
        convert_from(
            substring(t.tgargs FROM position('\x00'::bytea IN t.tgargs) + 1 FOR length(t.tgargs) - position('\x00'::bytea IN t.tgargs) - 1),
            getdatabaseencoding()
        ) AS by_what,
        c.relkind = 'p' AS partitioned
    FROM pg_catalog.pg_trigger AS t
    JOIN pg_catalog.pg_class AS c ON c.oid = t.tgrelid
    WHERE t.tgfoid = 'gatepost.guard_statement'::regproc
), member AS (
    SELECT guard.oid AS root, guard.oid AS oid
    FROM guard
    WHERE NOT EXISTS (
        SELECT
        FROM pg_catalog.pg_inherits AS i
        JOIN guard AS parent ON parent.oid = i.inhparent AND parent.args = guard.args
        WHERE i.inhrelid = guard.oid
    )
    UNION
    SELECT member.root, i.inhrelid
    FROM member
    JOIN pg_catalog.pg_inherits AS i ON i.inhparent = member.oid
), found AS (
    SELECT
        member.root,
        member.oid,
        count(*) FILTER (WHERE t.tgfoid = 'gatepost.guard_statement'::regproc AND t.tgargs = root.args) AS statements,
        count(*) FILTER (WHERE t.tgfoid = 'gatepost.guard_row'::regproc AND t.tgargs = root.args) AS rows,
        count(*) FILTER (WHERE t.tgenabled NOT IN ('O', 'A')) AS disabled
    FROM member
    JOIN guard AS root ON root.oid = member.root
    LEFT JOIN pg_catalog.pg_trigger AS t
        ON t.tgrelid = member.oid AND t.tgfoid IN ('gatepost.guard_statement'::regproc, 'gatepost.guard_row'::regproc)
    GROUP BY member.root, member.oid
), hole AS (
    SELECT
        found.root,
        found.oid,
        CASE
            WHEN found.statements = 0 THEN 'unguarded'
            WHEN found.disabled > 0 THEN 'disabled'
            WHEN (root.kind = 'column' OR root.partitioned) AND found.rows < 3 THEN 'rows'
            WHEN root.kind = 'column' AND NOT EXISTS (
                SELECT
                FROM pg_catalog.pg_attribute AS a
                WHERE a.attrelid = found.oid
                    AND a.attname = root.by_what
                    AND a.attnum > 0
                    AND NOT a.attisdropped
            ) THEN 'column'
        END AS problem
    FROM found
    JOIN guard AS root ON root.oid = found.root
)
SELECT
    n.nspname::text AS table_schema,
    c.relname::text AS table_name,
    (CASE WHEN root.kind = 'lease' THEN root.by_what ELSE '' END)::text AS lease,
    (CASE WHEN root.kind = 'column' THEN root.by_what ELSE '' END)::text AS lease_column,
    coalesce(hole.problem, '')::text AS problem,
    coalesce(hn.nspname::text, '')::text AS hole_schema,
    coalesce(hc.relname::text, '')::text AS hole_name
FROM guard AS root
JOIN pg_catalog.pg_class AS c ON c.oid = root.oid
JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
LEFT JOIN hole ON hole.root = root.oid AND hole.problem IS NOT NULL
LEFT JOIN pg_catalog.pg_class AS hc ON hc.oid = hole.oid
LEFT JOIN pg_catalog.pg_namespace AS hn ON hn.oid = hc.relnamespace
WHERE EXISTS (SELECT FROM member WHERE member.root = root.oid)
ORDER BY n.nspname, c.relname, hn.nspname, hc.relname;

-- GuardRemove takes the guard off a table, and says whether there was one.
-- name: GuardRemove :one
SELECT gatepost.unguard_table(to_regclass(@relation::text))::boolean AS removed;
