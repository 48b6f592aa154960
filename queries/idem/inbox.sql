-- InboxMark marks messages as done by attempt, those of which no live row can be
-- seen: the others cost a look-up, no lock and no WAL. keys and fingerprints (in hex)
-- go together, no key twice. Rows are written in the order of the keys, so that two
-- batches never wait for each other. It waits for a transaction that marks one of
-- them, lock_timeout_ms for each at most: then it is 55P03. DO UPDATE takes the row
-- of a mark that has expired, and its WHERE is computed after the row is locked.
-- InboxSeen, a new statement, tells which are marked. The caller's lock_timeout is
-- back at the end.
-- name: InboxMark :one
WITH wanted AS MATERIALIZED (
    SELECT
        m.key,
        m.fingerprint
    FROM (
        SELECT
            unnest(sqlc.arg(keys)::text[]) AS key,
            unnest(sqlc.arg(fingerprints)::text[]) AS fingerprint
    ) AS m
    WHERE NOT EXISTS (
        SELECT
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation = @operation
            AND k.scope = @scope
            AND k.key = m.key
            AND (k.state <> 2 OR k.expires_at > clock_timestamp())
    )
), bounded AS MATERIALIZED (
    SELECT
        before.lock_timeout,
        set_config('lock_timeout', sqlc.arg(lock_timeout_ms)::bigint::text, true) AS bounded
    FROM (
        SELECT current_setting('lock_timeout') AS lock_timeout
        WHERE EXISTS (SELECT FROM wanted)
        OFFSET 0
    ) AS before
), marked AS (
    INSERT INTO gatepost.idempotency_keys AS k (
        operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, body_len, created_at, done_at, expires_at
    )
    SELECT
        @operation,
        @scope,
        wanted.key,
        2,
        decode(wanted.fingerprint, 'hex'),
        @fingerprint_version,
        (@attempt::text)::uuid,
        1,
        0,
        clock_timestamp(),
        clock_timestamp(),
        clock_timestamp() + sqlc.arg(retention_us)::bigint * interval '1 microsecond'
    FROM wanted
    CROSS JOIN bounded
    ORDER BY wanted.key COLLATE "C"
    ON CONFLICT (operation, scope, key) DO UPDATE SET
        fingerprint = excluded.fingerprint,
        fingerprint_version = excluded.fingerprint_version,
        attempt = excluded.attempt,
        attempt_no = 1,
        created_at = clock_timestamp(),
        done_at = clock_timestamp(),
        expires_at = clock_timestamp() + sqlc.arg(retention_us)::bigint * interval '1 microsecond'
    WHERE k.state = 2 AND k.expires_at <= clock_timestamp()
    RETURNING k.key
)
SELECT
    counted.marked,
    coalesce(CASE WHEN bounded.lock_timeout IS NOT NULL THEN set_config('lock_timeout', bounded.lock_timeout, true) END, '')::text AS lock_timeout
FROM (SELECT count(*) AS marked FROM marked) AS counted
LEFT JOIN bounded ON true;

-- InboxSeen lists the rows of messages: mine are those that attempt has marked. A row
-- that is not there, or has expired, is to be marked. LIMIT makes it one look at the
-- index a key: with ANY, a table without statistics is read for all of a consumer's.
-- name: InboxSeen :many
SELECT
    k.key,
    k.state,
    k.fingerprint,
    k.fingerprint_version,
    k.mine
FROM unnest(sqlc.arg(keys)::text[]) AS m (key)
CROSS JOIN LATERAL (
    SELECT
        i.key,
        i.state,
        i.fingerprint,
        i.fingerprint_version,
        (i.attempt = (@attempt::text)::uuid)::boolean AS mine
    FROM gatepost.idempotency_keys AS i
    WHERE i.operation = @operation
        AND i.scope = @scope
        AND i.key = m.key
        AND (i.state <> 2 OR i.expires_at > clock_timestamp())
    LIMIT 1
) AS k;
