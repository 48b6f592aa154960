-- TargetColumns lists the types of a table's columns with the table's own name, whatever
-- the search path comes to hold, and says what may do with a row else than store it.
-- It is hooked where that may be anything: by a trigger of the application's on INSERT, the
-- table's or a partition's, a rule, a row-level policy. It is plain where COPY does with
-- rows of these columns what an INSERT does, once for all of them or part by part, and the
-- role may ask which rows are its own: none of that, no partition that is stored elsewhere
-- or otherwise, no child that inherits from it. A column is given where an INSERT may name
-- it, and unchecked where COPY, unlike INSERT, doesn't ask its domain whether it may be
-- left out.
-- PostgreSQL 14 takes a trigger that a partition has of its parent for an internal one, as
-- those of constraints are.
-- name: TargetColumns :many
WITH target AS MATERIALIZED (
    SELECT c.oid, c.relname, c.relkind, c.relhassubclass, c.relhasrules, c.relrowsecurity, n.nspname
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.oid = (@relation::text)::regclass
), parts AS MATERIALIZED (
    SELECT target.oid
    FROM target
    UNION
    SELECT p.relid::oid
    FROM target
    CROSS JOIN LATERAL pg_catalog.pg_partition_tree(target.oid) AS p
), nature AS MATERIALIZED (
    SELECT
        (
            target.relhasrules
            OR target.relrowsecurity
            OR EXISTS (
                SELECT
                FROM parts
                JOIN pg_catalog.pg_trigger AS t ON t.tgrelid = parts.oid
                WHERE t.tgtype & 4 = 4
                    AND (NOT t.tgisinternal OR t.tgparentid <> 0 AND t.tgconstraint = 0)
            )
        )::boolean AS hooked,
        (
            (target.relkind = 'p' OR target.relkind = 'r' AND NOT target.relhassubclass)
            AND pg_catalog.has_table_privilege(target.oid, 'SELECT')
            AND NOT EXISTS (
                SELECT
                FROM parts
                JOIN pg_catalog.pg_class AS m ON m.oid = parts.oid
                LEFT JOIN pg_catalog.pg_am AS am ON am.oid = m.relam
                WHERE m.relkind NOT IN ('r', 'p') OR am.amname <> 'heap'
            )
        )::boolean AS plain
    FROM target
)
SELECT
    target.nspname::text AS schema_name,
    target.relname::text AS table_name,
    a.attname::text AS name,
    a.atttypid::bigint AS type_oid,
    (a.attidentity <> 'a' AND a.attgenerated = '')::boolean AS given,
    (t.typtype = 'd' AND NOT a.atthasdef)::boolean AS unchecked,
    nature.hooked,
    (nature.plain AND NOT nature.hooked)::boolean AS plain
FROM target
CROSS JOIN nature
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = target.oid
JOIN pg_catalog.pg_type AS t ON t.oid = a.atttypid
WHERE a.attnum > 0
    AND NOT a.attisdropped;
