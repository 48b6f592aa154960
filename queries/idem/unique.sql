-- UniqueIndexes lists, for a table, the columns of each unique index that can
-- stand behind an ON CONFLICT (columns): valid, immediate, not partial, without
-- expressions. The columns come in the index's order; whether they ascend in it
-- comes with them.
-- name: UniqueIndexes :many
SELECT
    array_agg(a.attname ORDER BY array_position(i.indkey::smallint[], a.attnum))::text[] AS columns,
    bool_and(0 = ALL (i.indoption::smallint[]))::boolean AS ascending
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = (@relation::text)::regclass
    AND i.indisunique
    AND i.indisvalid
    AND i.indimmediate
    AND i.indpred IS NULL
    AND i.indexprs IS NULL
GROUP BY i.indexrelid
ORDER BY i.indexrelid;
