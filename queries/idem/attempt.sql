-- AttemptClaim claims a key for a new attempt under a lease, or reads what stands in
-- the way, in one statement that always returns one row. Nothing is written or locked
-- for a key that isn't free. free says that it read as absent or free: not granted
-- then, it changed meanwhile or its row is locked, and a new statement has to look
-- again, except where open is false: somebody is claiming the absent key right now.
-- What has expired, and isn't a claim with a live lease, is free as if it were
-- absent, whatever its fingerprint, and its steps go. A released row and a lapsed
-- claim are free for the same fingerprint, keep their steps, and previous says so. A
-- row that runs without a lease (transaction mode) can't be seen while it does.
-- The statement never waits for a claim of transaction mode: of an absent key that
-- one holds the advisory lock, of another the row (SKIP LOCKED). FOR UPDATE, not FOR
-- NO KEY UPDATE: it must not pass the FOR KEY SHARE of an open step. The clock is
-- read after the lock, and what was locked is judged again by it; the join is on the
-- key only, since the UPDATE scans an older snapshot than the version that was
-- locked. The limit on lock waits is for an INSERT that is not ours. An asynchronous
-- commit is made a durable one: effects outside the database follow. The columns
-- behind open are those of KeyProbe. Runs at READ COMMITTED.
-- name: AttemptClaim :one
WITH settings AS MATERIALIZED (
    SELECT
        set_config('lock_timeout', '100', true) AS lock_timeout,
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit
), seen AS MATERIALIZED (
    SELECT
        (k.expires_at <= n.at AND NOT (k.state = 1 AND coalesce(k.lease_until > n.at, false)))
            OR (
                k.fingerprint = @fingerprint
                AND k.fingerprint_version = @fingerprint_version
                AND (k.state = 4 OR (k.state = 1 AND coalesce(k.lease_until <= n.at, false)))
            ) AS free,
        k.state,
        k.fingerprint = @fingerprint AND k.fingerprint_version = @fingerprint_version AS same,
        k.status,
        k.headers,
        k.body,
        k.codec,
        k.body_len,
        k.done_at,
        k.lease_until - n.at AS lease_left
    FROM gatepost.idempotency_keys AS k
    CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
), gate AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(sqlc.arg(lock_id)::bigint) AS open
    FROM settings
    WHERE NOT EXISTS (SELECT FROM seen)
), locked AS MATERIALIZED (
    SELECT k.operation, k.scope, k.key, k.state, k.fingerprint, k.fingerprint_version, k.lease_until, k.expires_at
    FROM gatepost.idempotency_keys AS k
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
        AND EXISTS (SELECT FROM seen WHERE seen.free)
    FOR UPDATE SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT
        locked.operation,
        locked.scope,
        locked.key,
        locked.state,
        locked.fingerprint,
        locked.fingerprint_version,
        locked.lease_until,
        locked.expires_at,
        clock_timestamp() AS at
    FROM locked
), judged AS MATERIALIZED (
    SELECT
        clocked.operation,
        clocked.scope,
        clocked.key,
        clocked.at,
        clocked.expires_at <= clocked.at
            AND NOT (clocked.state = 1 AND coalesce(clocked.lease_until > clocked.at, false)) AS fresh,
        clocked.fingerprint = @fingerprint
            AND clocked.fingerprint_version = @fingerprint_version
            AND (clocked.state = 4 OR (clocked.state = 1 AND coalesce(clocked.lease_until <= clocked.at, false))) AS again
    FROM clocked
), taken AS (
    UPDATE gatepost.idempotency_keys AS k
    SET
        state = 1,
        fingerprint = @fingerprint,
        fingerprint_version = @fingerprint_version,
        attempt = (@attempt::text)::uuid,
        attempt_no = k.attempt_no + 1,
        lease_until = judged.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond',
        status = NULL,
        headers = NULL,
        body = NULL,
        body_len = NULL,
        codec = NULL,
        created_at = CASE WHEN judged.fresh THEN judged.at ELSE k.created_at END,
        done_at = NULL,
        expires_at = judged.at + (sqlc.arg(lease_us)::bigint + sqlc.arg(retention_us)::bigint) * interval '1 microsecond'
    FROM judged
    WHERE k.operation = judged.operation
        AND k.scope = judged.scope
        AND k.key = judged.key
        AND (judged.fresh OR judged.again)
    RETURNING NOT judged.fresh AS previous
), wiped AS (
    DELETE FROM gatepost.idempotency_steps AS s
    USING judged
    WHERE s.operation = judged.operation
        AND s.scope = judged.scope
        AND s.key = judged.key
        AND judged.fresh
), made AS (
    INSERT INTO gatepost.idempotency_keys AS k (
        operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, lease_until, created_at, expires_at
    )
    SELECT
        @operation,
        @scope,
        @key,
        1,
        @fingerprint,
        @fingerprint_version,
        (@attempt::text)::uuid,
        1,
        n.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond',
        n.at,
        n.at + (sqlc.arg(lease_us)::bigint + sqlc.arg(retention_us)::bigint) * interval '1 microsecond'
    FROM gate
    CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    WHERE gate.open
    ON CONFLICT DO NOTHING
    RETURNING false AS previous
), granted AS (
    SELECT taken.previous FROM taken
    UNION ALL
    SELECT made.previous FROM made
)
SELECT
    (g.previous IS NOT NULL)::boolean AS granted,
    coalesce(g.previous, false)::boolean AS previous,
    coalesce(s.free, true)::boolean AS free,
    coalesce(gate.open, true)::boolean AS open,
    coalesce(s.state, 1)::gatepost.idem_state AS state,
    coalesce(s.same, false)::boolean AS same,
    coalesce(s.status, 0)::integer AS status,
    coalesce(CASE WHEN s.same THEN s.headers::text END, '')::text AS headers,
    (CASE WHEN s.same THEN s.body END)::bytea AS body,
    coalesce(s.codec, '')::text AS codec,
    coalesce(s.body_len, 0)::bigint AS body_len,
    coalesce(CASE WHEN s.state = 3 THEN extract(epoch FROM s.done_at) * 1000000 END, 0)::bigint AS done_us,
    coalesce(CASE WHEN s.state = 1 THEN extract(epoch FROM s.lease_left) * 1000000 END, 0)::bigint AS lease_us
FROM settings
LEFT JOIN granted AS g ON true
LEFT JOIN gate ON true
LEFT JOIN seen AS s ON true;

-- AttemptFind finds out whether a claim whose answer was lost was granted. No row:
-- not, or not yet. A claim of a key that somebody had before keeps the row's
-- created_at, and the lease counts from the claim as long as nothing has renewed it.
-- name: AttemptFind :one
SELECT (k.created_at < k.lease_until - sqlc.arg(lease_us)::bigint * interval '1 microsecond')::boolean AS previous
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND k.attempt = (@attempt::text)::uuid
    AND k.state = 1
    AND k.lease_until > clock_timestamp();

-- AttemptLock locks the key of an attempt before its last effects, so that nobody
-- takes it over until the transaction ends. No row: it is not this attempt's any
-- more. FOR UPDATE: another Finish, and a step that is open, are waited for. The
-- heartbeat skips the row meanwhile. A client that is stopped in its transaction
-- must not keep the key for ever: the server ends the session when it says nothing
-- for limit_ms. An asynchronous commit is made a durable one.
-- name: AttemptLock :one
WITH limits AS MATERIALIZED (
    SELECT
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit,
        CASE WHEN current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 ms' AND sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS idle
)
SELECT k.attempt_no
FROM limits
CROSS JOIN gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND k.attempt = (@attempt::text)::uuid
    AND k.state = 1
FOR UPDATE OF k;

-- AttemptOutcome tells the state of a key that is still this attempt's, after every
-- transaction that is at work on it has ended: a COMMIT whose answer was lost is
-- decided then. No row: the key is another attempt's, or gone.
-- name: AttemptOutcome :one
SELECT k.state
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND k.attempt = (@attempt::text)::uuid
FOR UPDATE;

-- AttemptRelease gives a key back that is still this attempt's, lapsed or not, for
-- the next attempt with the same fingerprint. The row stays: a counter or an attempt
-- that began anew after a DELETE would let a stale one pass. No row: it isn't this
-- attempt's any more, nothing is changed. It doesn't wait for an open step: the next
-- claim does.
-- name: AttemptRelease :one
UPDATE gatepost.idempotency_keys AS k
SET
    state = 4,
    lease_until = NULL,
    expires_at = clock_timestamp() + sqlc.arg(retention_us)::bigint * interval '1 microsecond'
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND k.attempt = (@attempt::text)::uuid
    AND k.state = 1
RETURNING k.attempt_no;

-- AttemptRenew extends the leases of attempts, and returns where in the lists those
-- are that didn't get it, from 1: gone are not the attempt's any more, lapsed ones are
-- too late, skipped ones somebody else has locked for a moment. It touches a key only
-- where the attempt is the caller's, runs and hasn't lapsed, and it changes nothing
-- that it compares, so a renewal whose reply was lost can be repeated. The rows are
-- locked in key order, FOR NO KEY UPDATE, which passes an open step, and the clock is
-- read after that. expires_at keeps ahead of the lease by the retention at least, and
-- moves seldom: it is indexed, and an update that leaves it alone is HOT. An
-- asynchronous commit is made a durable one, as for a claim. Runs at READ COMMITTED.
-- name: AttemptRenew :one
WITH settings AS MATERIALIZED (
    SELECT
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit
), wanted AS MATERIALIZED (
    SELECT
        generate_subscripts(@operations::text[], 1) AS ord,
        unnest(@operations::text[]) AS operation,
        unnest(@scopes::text[]) AS scope,
        unnest(@keys::text[]) AS key,
        unnest((@attempts::text[])::uuid[]) AS attempt
), seen AS MATERIALIZED (
    SELECT w.ord, k.lease_until <= clock_timestamp() AS lapsed
    FROM wanted AS w
    JOIN gatepost.idempotency_keys AS k ON k.operation = w.operation AND k.scope = w.scope AND k.key = w.key
    WHERE k.attempt = w.attempt
        AND k.state = 1
), locked AS MATERIALIZED (
    SELECT w.ord, k.operation, k.scope, k.key, k.lease_until
    FROM wanted AS w
    JOIN gatepost.idempotency_keys AS k ON k.operation = w.operation AND k.scope = w.scope AND k.key = w.key
    WHERE k.attempt = w.attempt
        AND k.state = 1
        AND k.lease_until > clock_timestamp()
    ORDER BY k.operation, k.scope, k.key
    FOR NO KEY UPDATE OF k SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT
        locked.ord,
        locked.operation,
        locked.scope,
        locked.key,
        locked.lease_until,
        clock_timestamp() AS at
    FROM locked
), renewed AS (
    UPDATE gatepost.idempotency_keys AS k
    SET
        lease_until = clocked.at + sqlc.arg(lease_us)::bigint * interval '1 microsecond',
        expires_at = CASE
            WHEN k.expires_at >= clocked.at + (sqlc.arg(lease_us)::bigint + sqlc.arg(retention_us)::bigint) * interval '1 microsecond'
                THEN k.expires_at
            ELSE clocked.at + (sqlc.arg(lease_us)::bigint + sqlc.arg(retention_us)::bigint * 3 / 2) * interval '1 microsecond'
        END
    FROM clocked
    WHERE k.operation = clocked.operation
        AND k.scope = clocked.scope
        AND k.key = clocked.key
        AND clocked.lease_until > clocked.at
    RETURNING clocked.ord
)
SELECT
    (coalesce(array_agg(w.ord) FILTER (WHERE r.ord IS NULL AND s.ord IS NULL), '{}'))::integer[] AS gone,
    (coalesce(array_agg(w.ord) FILTER (WHERE r.ord IS NULL AND s.lapsed), '{}'))::integer[] AS lapsed,
    (coalesce(array_agg(w.ord) FILTER (WHERE r.ord IS NULL AND NOT s.lapsed), '{}'))::integer[] AS skipped
FROM settings
CROSS JOIN wanted AS w
LEFT JOIN seen AS s ON s.ord = w.ord
LEFT JOIN renewed AS r ON r.ord = w.ord;
