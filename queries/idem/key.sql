-- KeyAwaitSteps waits, behind a claim of a row that was another attempt's, for its steps
-- that are open, for wait_ms at most: then it is 55P03. The claim's own lock passes
-- theirs, as it changes no key; what they write is committed, or not, before it goes
-- on. The caller's lock_timeout is back at the end.
-- name: KeyAwaitSteps :exec
WITH bounded AS MATERIALIZED (
    SELECT
        before.lock_timeout,
        set_config('lock_timeout', sqlc.arg(wait_ms)::bigint::text, true) AS bounded
    FROM (SELECT current_setting('lock_timeout') AS lock_timeout OFFSET 0) AS before
), locked AS MATERIALIZED (
    SELECT bounded.lock_timeout
    FROM bounded
    CROSS JOIN gatepost.idempotency_keys AS k
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
    FOR UPDATE OF k
)
SELECT set_config('lock_timeout', locked.lock_timeout, true)
FROM locked;

-- KeyClaim claims a key for the transaction that it runs in. No row: there is no
-- claim, because another transaction has the key's lock, or because a row is in the
-- way; a new statement must find out (KeyTryLock, KeyProbe), since a row that was
-- committed after this statement's snapshot is only seen by the INSERT. What
-- decides is the row, in DO UPDATE, whose WHERE is computed after the row is
-- locked. The advisory lock only keeps callers from waiting, and its number may be
-- that of another key. The INSERT can wait for whoever writes to the row without
-- that lock, for lock_timeout_ms at most: then it is 55P03. CASE sets the settings
-- in this order. The caller's lock_timeout is kept in gatepost.lock_timeout, and is
-- back at the end when there is a claim, else KeyTryLock brings it back. A record
-- that has expired begins anew (created_at); after a release its attempts are
-- counted on. The claim can't be committed before KeyFinish. All columns are given,
-- in the table's order and types, because that saves the plan a node.
-- unseen is for a claim without a look ahead: where there is a row, whatever it says, there
-- is no claim, no lock and nothing written; nor at SERIALIZABLE, since who reads there
-- where others insert fails with them.
-- name: KeyClaim :one
INSERT INTO gatepost.idempotency_keys AS k (
    operation, scope, key, state, fingerprint, fingerprint_version, attempt, attempt_no, lease_until,
    status, headers, body, body_len, codec, created_at, done_at, expires_at
)
SELECT
    (@operation::text)::gatepost.idem_operation,
    (@scope::text)::gatepost.idem_scope,
    (@key::text)::gatepost.idem_key,
    1::gatepost.idem_state,
    (@fingerprint::bytea)::gatepost.idem_fingerprint,
    @fingerprint_version::smallint,
    (@attempt::text)::uuid,
    1::bigint,
    NULL::timestamptz,
    NULL::integer,
    NULL::jsonb,
    NULL::bytea,
    NULL::bigint,
    NULL::text,
    clock_timestamp(),
    NULL::timestamptz,
    clock_timestamp() + sqlc.arg(retention_us)::bigint * interval '1 microsecond'
WHERE CASE
    WHEN @unseen::boolean AND (
        current_setting('transaction_isolation') = 'serializable'
        OR EXISTS (
            SELECT
            FROM gatepost.idempotency_keys AS seen
            WHERE seen.operation = @operation::text
                AND seen.scope = @scope::text
                AND seen.key = @key::text
        )
    ) THEN false
    WHEN set_config('gatepost.lock_timeout', current_setting('lock_timeout'), true) IS NULL THEN false
    WHEN set_config('lock_timeout', sqlc.arg(lock_timeout_ms)::bigint::text, true) IS NULL THEN false
    ELSE pg_try_advisory_xact_lock(sqlc.arg(lock)::bigint)
END
ON CONFLICT (operation, scope, key) DO UPDATE SET
    state = 1,
    fingerprint = excluded.fingerprint,
    fingerprint_version = excluded.fingerprint_version,
    attempt = excluded.attempt,
    attempt_no = k.attempt_no + 1,
    lease_until = NULL,
    status = NULL,
    headers = NULL,
    body = NULL,
    body_len = NULL,
    codec = NULL,
    created_at = CASE WHEN k.expires_at <= clock_timestamp() THEN excluded.created_at ELSE k.created_at END,
    done_at = NULL,
    expires_at = excluded.expires_at
WHERE (k.expires_at <= clock_timestamp() AND (k.state <> 1 OR k.lease_until <= clock_timestamp()))
    OR (
        k.state = 4
        AND k.fingerprint = excluded.fingerprint
        AND k.fingerprint_version = excluded.fingerprint_version
    )
RETURNING
    k.attempt_no,
    set_config('lock_timeout', current_setting('gatepost.lock_timeout'), true)::text AS lock_timeout;

-- KeyDetail reads what is told of a key that is in progress, or whose reply was not
-- kept. absent says of a claim in lease mode that neither it nor its record lives.
-- lease_us is what it has left, negative when it has lapsed; done_us is microseconds
-- since the epoch. Both are 0 where there is no such time.
-- name: KeyDetail :one
SELECT
    coalesce(k.expires_at <= clock_timestamp() AND k.lease_until <= clock_timestamp(), false)::boolean AS absent,
    coalesce(extract(epoch FROM k.lease_until - clock_timestamp()) * 1000000, 0)::bigint AS lease_us,
    coalesce(extract(epoch FROM k.done_at) * 1000000, 0)::bigint AS done_us,
    coalesce(k.body_len, 0)::bigint AS body_len
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key;

-- KeyFinish stores what came of a claim: state 2 with the reply, or 3 without it.
-- It changes the row only while the claim is attempt's, and fails otherwise, so
-- that a COMMIT sent behind it is not reached: with 23514 of the domain idem_state,
-- since no row is in state 0. The record lives from now on.
-- name: KeyFinish :one
WITH finished AS (
    UPDATE gatepost.idempotency_keys AS k
    SET
        state = sqlc.arg(state)::smallint,
        lease_until = NULL,
        status = sqlc.arg(status)::integer,
        headers = (sqlc.narg(headers)::text)::jsonb,
        body = sqlc.narg(body)::bytea,
        body_len = sqlc.arg(body_len)::bigint,
        codec = sqlc.narg(codec)::text,
        done_at = clock_timestamp(),
        expires_at = greatest(k.expires_at, clock_timestamp() + sqlc.arg(retention_us)::bigint * interval '1 microsecond')
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
        AND k.attempt = (@attempt::text)::uuid
        AND k.state = 1
    RETURNING k.state
)
SELECT coalesce((SELECT finished.state FROM finished)::smallint, 0::smallint)::gatepost.idem_state AS state;

-- KeyLock waits for the lock that KeyClaim takes, for wait_ms at most: then it is
-- 55P03. The transaction that had it has ended by then, and a new statement at
-- READ COMMITTED sees what it committed. The caller's lock_timeout is back at the
-- end.
-- name: KeyLock :exec
WITH bounded AS MATERIALIZED (
    SELECT
        before.lock_timeout,
        set_config('lock_timeout', sqlc.arg(wait_ms)::bigint::text, true) AS bounded
    FROM (SELECT current_setting('lock_timeout') AS lock_timeout OFFSET 0) AS before
), locked AS MATERIALIZED (
    SELECT
        bounded.lock_timeout,
        pg_advisory_xact_lock(sqlc.arg(lock)::bigint) AS locked
    FROM bounded
)
SELECT set_config('lock_timeout', locked.lock_timeout, true)
FROM locked;

-- KeyOutcome says whether an attempt has stored its reply. No row: it has not, and
-- nobody else has.
-- name: KeyOutcome :one
SELECT (k.attempt = (@attempt::text)::uuid AND k.state IN (2, 3))::boolean AS stored
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key;

-- KeyProbe reads what stands in the way of a claim, without a lock. No row: nothing
-- does, or a record that has expired. It is the whole cost of a replay, so it returns
-- columns as they are; what the other states need is in KeyDetail.
-- name: KeyProbe :one
SELECT
    k.state,
    k.fingerprint,
    k.fingerprint_version,
    k.status,
    k.headers,
    k.body,
    k.codec
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND (k.expires_at > clock_timestamp() OR k.state = 1);

-- KeyStepsForget removes the steps of a record that has expired, after a claim
-- began a new one in its row.
-- name: KeyStepsForget :exec
DELETE FROM gatepost.idempotency_steps AS s
USING gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key
    AND s.operation = k.operation
    AND s.scope = k.scope
    AND s.key = k.key
    AND s.done_at < k.created_at;

-- KeyTryLock says, after a claim that wasn't had, whether the key's lock is had now,
-- and brings the caller's lock_timeout back.
-- name: KeyTryLock :one
SELECT
    pg_try_advisory_xact_lock(sqlc.arg(lock)::bigint) AS had,
    set_config('lock_timeout', current_setting('gatepost.lock_timeout'), true)::text AS lock_timeout;
