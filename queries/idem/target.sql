-- TargetColumns lists the types of a table's columns, and whether anything may
-- change what an INSERT does with a row: a row trigger that fires before it, a
-- rule, a row-level policy.
-- name: TargetColumns :many
SELECT
    a.attname::text AS name,
    a.atttypid::bigint AS type_oid,
    (
        c.relhasrules
        OR c.relrowsecurity
        OR EXISTS (
            SELECT
            FROM pg_catalog.pg_trigger AS t
            WHERE t.tgrelid = c.oid
                AND NOT t.tgisinternal
                AND t.tgtype & 1 = 1
                AND t.tgtype & 4 = 4
                AND t.tgtype & 66 <> 0
        )
    )::boolean AS hooked
FROM pg_catalog.pg_class AS c
JOIN pg_catalog.pg_attribute AS a ON a.attrelid = c.oid
WHERE c.oid = (@relation::text)::regclass
    AND a.attnum > 0
    AND NOT a.attisdropped;
