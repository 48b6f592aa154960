-- LeaseFence checks that a token is still the current one and keeps it so until
-- the transaction ends. FOR KEY SHARE waits for, and then holds off, a takeover
-- (a key update, because token is in a unique index) and lets heartbeats and
-- the release pass. The expiry is compared with a clock that is read after the
-- lock; and before it too, so that fences that are refused don't keep out the takeover
-- that they are refused for. No row: the token is not the current one, or that. It leaves the transaction's
-- timeouts alone. What passed is presented to the guards of tables, as tested in this
-- transaction, behind what was presented before.
-- name: LeaseFence :one
WITH locked AS MATERIALIZED (
    SELECT l.expires_at
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND l.token = @token
        AND l.nonce = (@nonce::text)::uuid
        AND l.expires_at > clock_timestamp()
    FOR KEY SHARE
)
SELECT (
    locked.expires_at > clock_timestamp()
    AND set_config('gatepost.fence', concat_ws(' ', nullif(current_setting('gatepost.fence', true), ''), pg_current_xact_id()::text || '/' || @sequencer::text), true) <> ''
)::boolean AS live
FROM locked;

-- LeaseFenceFirst is LeaseFence as the first statement of a transaction of our
-- own. It bounds the transaction too, where the limit is stricter than what is
-- set: the limits are in the same statement because at REPEATABLE READ the
-- fence must be the statement that takes the snapshot, and in the WHERE, which comes
-- before the lock, because the lock wait is under them. It also returns what resolves
-- a COMMIT whose answer is lost: the transaction id, and which start of which server
-- gave it. What passed is presented to the guards of tables; what a session had there
-- before is gone.
-- name: LeaseFenceFirst :one
SELECT
    (
        locked.expires_at > clock_timestamp()
        AND set_config('gatepost.fence', pg_current_xact_id()::text || '/' || @sequencer::text, true) <> ''
    )::boolean AS live,
    pg_current_xact_id()::text AS xid,
    pg_postmaster_start_time()::timestamptz AS server_start
FROM (
    SELECT l.expires_at
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND l.token = @token
        AND l.nonce = (@nonce::text)::uuid
        AND l.expires_at > clock_timestamp()
        AND CASE WHEN current_setting('lock_timeout') = '0' OR current_setting('lock_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('lock_timeout', sqlc.arg(limit_ms)::bigint::text, true) <> '' ELSE true END
        AND CASE WHEN current_setting('statement_timeout') = '0' OR current_setting('statement_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('statement_timeout', sqlc.arg(limit_ms)::bigint::text, true) <> '' ELSE true END
        AND CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0' OR current_setting('idle_in_transaction_session_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(limit_ms)::bigint::text, true) <> '' ELSE true END
        -- PostgreSQL 17 and later; the setting is NULL before.
        AND CASE WHEN current_setting('transaction_timeout', true) = '0' OR current_setting('transaction_timeout', true)::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('transaction_timeout', sqlc.arg(limit_ms)::bigint::text, true) <> '' ELSE true END
    FOR KEY SHARE
    OFFSET 0 -- a fence for the planner: the clock is read above the lock
) AS locked;

-- LeaseFenceTry is LeaseFence through the function, for which no right to the leases is
-- needed. It returns a row in any case: see gatepost.try_fence. xids counts the
-- transaction ids that this backend holds: more than one inside a savepoint.
-- name: LeaseFenceTry :one
SELECT
    t.verdict::text AS verdict,
    coalesce(t.current, 0)::bigint AS current,
    pg_current_xact_id()::text AS xid,
    (
        SELECT count(*)
        FROM pg_catalog.pg_locks
        WHERE pg_locks.pid = pg_backend_pid()
            AND pg_locks.locktype = 'transactionid'
            AND pg_locks.mode = 'ExclusiveLock'
            AND pg_locks.granted
    )::bigint AS xids
FROM gatepost.try_fence(@name::text, @slot::integer, @token::bigint, (@nonce::text)::uuid) AS t;

-- LeaseFenceTryFirst is LeaseFenceFirst through that function.
-- name: LeaseFenceTryFirst :one
WITH limits AS MATERIALIZED (
    SELECT
        CASE WHEN current_setting('lock_timeout') = '0' OR current_setting('lock_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('lock_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS lock_timeout,
        CASE WHEN current_setting('statement_timeout') = '0' OR current_setting('statement_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('statement_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS statement_timeout,
        CASE WHEN current_setting('idle_in_transaction_session_timeout') = '0' OR current_setting('idle_in_transaction_session_timeout')::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS idle_timeout,
        CASE WHEN current_setting('transaction_timeout', true) = '0' OR current_setting('transaction_timeout', true)::interval > sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('transaction_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS transaction_timeout
)
SELECT
    t.verdict::text AS verdict,
    coalesce(t.current, 0)::bigint AS current,
    pg_current_xact_id()::text AS xid,
    pg_postmaster_start_time()::timestamptz AS server_start
FROM limits
CROSS JOIN LATERAL gatepost.try_fence(@name::text, @slot::integer, @token::bigint, (@nonce::text)::uuid) AS t;

-- LeaseToken reads the current token of a name, to tell a refused holder which
-- one it was refused for, and whether that one was released, or is the holder's still
-- and has expired. It locks nothing.
-- name: LeaseToken :one
SELECT
    l.token,
    (l.nonce IS NULL)::boolean AS released,
    coalesce(l.nonce = (@nonce::text)::uuid, false)::boolean AS mine
FROM gatepost.leases AS l
WHERE l.name = @name
    AND l.slot = @slot;
