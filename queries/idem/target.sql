-- TargetColumns lists the types of a table's columns, and says whether anything may
-- change what an INSERT does with a row, which is hooked: a row trigger that fires
-- before it, a rule, a row-level policy. It is plain where COPY does with rows of
-- these columns what an INSERT does, once for all of them or part by part, and the
-- role may ask which rows are its own: no trigger of the application's, no partition
-- that is stored elsewhere or otherwise, no child that inherits from it. A column is
-- given where an INSERT may name it.
-- name: TargetColumns :many
WITH target AS MATERIALIZED (
    SELECT
        c.oid,
        (c.relhasrules OR c.relrowsecurity)::boolean AS restricted,
        (
            (c.relkind = 'p' OR c.relkind = 'r' AND NOT c.relhassubclass)
            AND pg_catalog.has_table_privilege(c.oid, 'SELECT')
            AND NOT EXISTS (
                SELECT
                FROM pg_catalog.pg_class AS m
                LEFT JOIN pg_catalog.pg_am AS am ON am.oid = m.relam
                WHERE (m.oid = c.oid OR m.oid IN (SELECT p.relid FROM pg_catalog.pg_partition_tree(c.oid) AS p))
                    AND (
                        m.relkind NOT IN ('r', 'p')
                        OR am.amname <> 'heap'
                        OR EXISTS (
                            SELECT
                            FROM pg_catalog.pg_trigger AS t
                            WHERE t.tgrelid = m.oid AND NOT t.tgisinternal AND t.tgtype & 4 = 4
                        )
                    )
            )
        )::boolean AS plain,
        EXISTS (
            SELECT
            FROM pg_catalog.pg_trigger AS t
            WHERE t.tgrelid = c.oid
                AND NOT t.tgisinternal
                AND t.tgtype & 1 = 1
                AND t.tgtype & 4 = 4
                AND t.tgtype & 66 <> 0
        ) AS triggered
    FROM pg_catalog.pg_class AS c
    WHERE c.oid = (@relation::text)::regclass
)
SELECT
    a.attname::text AS name,
    a.atttypid::bigint AS type_oid,
    (a.attidentity <> 'a' AND a.attgenerated = '')::boolean AS given,
    (target.restricted OR target.triggered)::boolean AS hooked,
    (target.plain AND NOT target.restricted)::boolean AS plain
FROM target
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = target.oid
WHERE a.attnum > 0
    AND NOT a.attisdropped;
