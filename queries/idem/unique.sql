-- UniqueIndexes lists, for a table, the columns of each unique index that can
-- stand behind an ON CONFLICT (columns): valid, immediate, not partial, without
-- expressions, of equal keys and not of ones that overlap. The columns come in the
-- index's order; with them come the collations that decide there which are equal, where
-- they are not the columns' own, and whether the columns ascend in it.
-- name: UniqueIndexes :many
SELECT
    array_agg(a.attname ORDER BY array_position(i.indkey::smallint[], a.attnum))::text[] AS columns,
    array_agg(
        CASE i.indcollation[array_position(i.indkey::smallint[], a.attnum)]
            WHEN a.attcollation THEN ''
            ELSE i.indcollation[array_position(i.indkey::smallint[], a.attnum)]::regcollation::text
        END
        ORDER BY array_position(i.indkey::smallint[], a.attnum)
    )::text[] AS collations,
    bool_and(0 = ALL (i.indoption::smallint[]))::boolean AS ascending
FROM pg_catalog.pg_index AS i
JOIN pg_catalog.pg_attribute AS a
    ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0:i.indnkeyatts - 1])
WHERE i.indrelid = (@relation::text)::regclass
    AND i.indisunique
    AND i.indisvalid
    AND i.indimmediate
    AND NOT i.indisexclusion
    AND i.indpred IS NULL
    AND i.indexprs IS NULL
GROUP BY i.indexrelid
ORDER BY i.indexrelid;
