-- GuardAdd puts a guard on a table: see gatepost.guard_table.
-- name: GuardAdd :exec
SELECT gatepost.guard_table(to_regclass(@relation::text), sqlc.narg(lease)::text, sqlc.narg(lease_column)::name);

-- GuardList reads the guards from the triggers, which are the truth: they follow a table
-- that is renamed, go with one that is dropped, and come with one that is restored. Any
-- trigger of either function makes a guard, so that one which lost the other is one with a
-- hole. One row a guard, or one a hole in it: column, which isn't there any more, and
-- renamed_to, where it can be told; unguarded, a partition or a child that has no guard of
-- its own; statement, the table itself has no such trigger; disabled, triggers that don't
-- fire; rows, triggers for rows that are missing. A trigger that was made to fire
-- for less is missing: its condition is compared as the server writes it, brackets
-- and names of the system aside. Partitions and children are their parent's.
-- name: GuardList :many
WITH RECURSIVE trigger AS MATERIALIZED (
    SELECT
        t.oid,
        t.tgrelid,
        t.tgargs AS args,
        t.tgparentid <> 0 AS inherited,
        t.tgfoid = 'gatepost.guard_statement'::regproc AS of_statement,
        t.tgtype AS type,
        t.tgenabled NOT IN ('O', 'A') AS disabled,
        t.tgattr::text = '' AND NOT t.tgdeferrable AS plain,
        t.tgqual IS NOT NULL AS conditional,
        convert_from(substring(t.tgargs FROM 1 FOR position(decode('00', 'hex') IN t.tgargs) - 1), getdatabaseencoding()) AS kind,
        convert_from(
            substring(t.tgargs FROM position(decode('00', 'hex') IN t.tgargs) + 1 FOR length(t.tgargs) - position(decode('00', 'hex') IN t.tgargs) - 1),
            getdatabaseencoding()
        ) AS by_what
    FROM pg_catalog.pg_trigger AS t
    WHERE t.tgfoid IN ('gatepost.guard_statement'::regproc, 'gatepost.guard_row'::regproc)
        AND t.tgnargs = 2
), guard AS MATERIALIZED (
    SELECT DISTINCT ON (trigger.tgrelid)
        trigger.tgrelid AS oid,
        trigger.args,
        trigger.kind,
        trigger.by_what,
        c.relkind = 'p' AS partitioned,
        trigger.kind = 'column' AND NOT EXISTS (
            SELECT
            FROM pg_catalog.pg_attribute AS a
            WHERE a.attrelid = trigger.tgrelid
                AND a.attname = trigger.by_what
                AND a.attnum > 0
                AND NOT a.attisdropped
        ) AS lost
    FROM trigger
    JOIN pg_catalog.pg_class AS c ON c.oid = trigger.tgrelid
    WHERE trigger.kind IN ('lease', 'column')
    ORDER BY trigger.tgrelid, trigger.of_statement DESC, trigger.inherited, trigger.oid
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
), judged AS (
    SELECT
        trigger.tgrelid,
        trigger.args,
        trigger.type,
        trigger.of_statement,
        trigger.disabled,
        trigger.plain AND CASE
            WHEN trigger.of_statement THEN NOT trigger.conditional
                -- Foreign tables have had triggers for TRUNCATE since PostgreSQL 16.
                AND (trigger.type = 62 OR trigger.type = 30 AND c.relkind = 'f')
            ELSE trigger.type IN (5, 9, 17) AND strpos(
                regexp_replace(pg_get_triggerdef(trigger.oid), 'pg_catalog[.]|OPERATOR|::text|[() "]', '', 'g'),
                'FOREACHROWWHEN' || (
                    SELECT string_agg(
                        'strposcurrent_setting''gatepost.fenced'',true,chr10||pg_current_xact_id||''/''||'
                            || regexp_replace(
                                CASE trigger.kind
                                    WHEN 'lease' THEN '''' || replace(trigger.by_what, '''', '''''') || ''''
                                    ELSE side.name || '.' || quote_ident(trigger.by_what)
                                END,
                                'pg_catalog[.]|OPERATOR|::text|[() "]', '', 'g'
                            )
                            || '||chr10>0',
                        'AND' ORDER BY side.name DESC
                    )
                    FROM unnest(CASE
                        WHEN trigger.kind = 'lease' OR trigger.type = 5 THEN '{new}'
                        WHEN trigger.type = 9 THEN '{old}'
                        ELSE '{old,new}'
                    END::text[]) AS side (name)
                ) || 'ISNOTTRUEEXECUTEFUNCTION'
            ) > 0
        END AS sound
    FROM trigger
    JOIN pg_catalog.pg_class AS c ON c.oid = trigger.tgrelid
), found AS (
    SELECT
        member.root,
        member.oid,
        count(*) FILTER (WHERE t.of_statement AND t.sound AND t.args = root.args) AS statements,
        count(DISTINCT t.type) FILTER (WHERE NOT t.of_statement AND t.sound AND t.args = root.args) AS rows,
        count(*) FILTER (WHERE t.disabled) AS disabled,
        EXISTS (
            SELECT
            FROM pg_catalog.pg_inherits AS i
            WHERE i.inhrelid = member.oid
                AND NOT EXISTS (SELECT FROM member AS parent WHERE parent.root = member.root AND parent.oid = i.inhparent)
        ) AS outside
    FROM member
    JOIN guard AS root ON root.oid = member.root
    LEFT JOIN judged AS t ON t.tgrelid = member.oid
    GROUP BY member.root, member.oid
), hole AS (
    SELECT
        found.root,
        found.oid,
        CASE
            WHEN root.lost THEN CASE WHEN found.oid = found.root THEN 'column' END
            WHEN found.statements = 0 THEN CASE WHEN found.oid = found.root THEN 'statement' ELSE 'unguarded' END
            WHEN found.disabled > 0 THEN 'disabled'
            WHEN found.rows < 3 AND (root.kind = 'column' OR root.partitioned OR found.outside) THEN 'rows'
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
    coalesce(hc.relname::text, '')::text AS hole_name,
    coalesce(CASE WHEN hole.problem = 'column' THEN (
        SELECT max(a.attname)
        FROM trigger
        JOIN pg_catalog.pg_depend AS d ON d.classid = 'pg_catalog.pg_trigger'::regclass AND d.objid = trigger.oid
        JOIN pg_catalog.pg_attribute AS a ON a.attrelid = d.refobjid AND a.attnum = d.refobjsubid AND NOT a.attisdropped
        WHERE trigger.tgrelid = hole.oid
            AND d.refclassid = 'pg_catalog.pg_class'::regclass
            AND d.refobjsubid > 0
    ) END, '')::text AS renamed_to
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
