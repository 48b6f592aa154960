-- WaiterCatchUp waits for the releases under way of the names that somebody begins to
-- wait for, by their locks (WaiterHoldOff), for wait_ms at most: then it is 55P03. What is
-- looked at behind it was released, or is released by somebody who sees the waiter.
-- name: WaiterCatchUp :exec
WITH bounded AS MATERIALIZED (
    SELECT set_config('lock_timeout', sqlc.arg(wait_ms)::bigint::text, true) AS lock_timeout
)
SELECT pg_advisory_xact_lock_shared(waited.lock)
FROM bounded
CROSS JOIN unnest(@locks::bigint[]) AS waited (lock);

-- WaiterForget takes a client's rows away, some or all.
-- name: WaiterForget :exec
DELETE FROM gatepost.waiters AS w
WHERE w.client = @client
    AND (@all_of_it::boolean OR w.waiter = ANY (@waiters::bigint[]));

-- WaiterHoldOff keeps whoever begins to wait for a name from looking at it before this
-- transaction, a release, has ended, and never waits. Behind it, in a newer snapshot, the
-- release sees all who began before; who comes later waits for it in WaiterCatchUp. false:
-- somebody begins at this moment.
-- name: WaiterHoldOff :one
SELECT pg_try_advisory_xact_lock(sqlc.arg(lock)::bigint) AS had;

-- WaiterKeep registers a client's waiters, or keeps them registered. A waiter
-- that stays keeps its place. In key order, like every statement that locks more
-- than one row.
-- name: WaiterKeep :exec
INSERT INTO gatepost.waiters AS w (client, waiter, name, slot, holder, since, expires_at)
SELECT
    @client,
    wanted.waiter,
    wanted.name,
    @slot,
    @holder,
    clock_timestamp(),
    clock_timestamp() + sqlc.arg(ttl_us)::bigint * interval '1 microsecond'
FROM (SELECT unnest(@waiters::bigint[]) AS waiter, unnest(@names::text[]) AS name) AS wanted
ORDER BY wanted.waiter
ON CONFLICT (client, waiter) DO UPDATE SET expires_at = excluded.expires_at;

-- WaiterLook says, of each name, whether it could be had now, and how many clients
-- are registered for it, as read without a lock.
-- name: WaiterLook :many
SELECT
    wanted.name::text AS name,
    NOT EXISTS (
        SELECT
        FROM gatepost.leases AS l
        WHERE l.name = wanted.name
            AND l.slot = @slot
            AND (
                (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp())
                OR (l.nonce IS NULL AND l.reserved_until > clock_timestamp() AND l.reserved_for <> @holder::text)
            )
    ) AS free,
    (
        SELECT count(*)
        FROM gatepost.waiters AS w
        WHERE w.name = wanted.name
            AND w.slot = @slot
            AND w.expires_at > clock_timestamp()
    )::bigint AS clients
FROM (SELECT unnest(@names::text[]) AS name) AS wanted;

-- WaiterSweep takes the rows of clients that died away, and counts them. It reads the
-- whole table, whose rows are the clients that wait; those that another sweep has
-- locked are left to it, as two could lock them in different orders.
-- name: WaiterSweep :execrows
WITH dead AS MATERIALIZED (
    SELECT w.client, w.waiter
    FROM gatepost.waiters AS w
    WHERE w.expires_at < clock_timestamp() - interval '1 minute'
    FOR UPDATE SKIP LOCKED
)
DELETE FROM gatepost.waiters AS w
USING dead
WHERE w.client = dead.client
    AND w.waiter = dead.waiter;

-- WaiterWake notifies the waiter that has waited longest, or the one that the
-- lease is reserved for, and moves it behind the others, so that each client has
-- its turn. One whose row is deleted at this moment is passed over for the next:
-- that needs READ COMMITTED. Nobody waits: nothing is sent and nothing is written.
-- It is a transaction of its own after the release committed, because a NOTIFY
-- serialises commits.
-- name: WaiterWake :exec
WITH next AS MATERIALIZED (
    SELECT w.client, w.waiter
    FROM gatepost.waiters AS w
    WHERE w.name = @name
        AND w.slot = @slot
        AND w.expires_at > clock_timestamp()
    ORDER BY w.holder <> coalesce(sqlc.narg(reserved_for)::text, w.holder), w.since, w.client
    LIMIT 1
    FOR NO KEY UPDATE
), moved AS (
    UPDATE gatepost.waiters AS w
    SET since = clock_timestamp()
    FROM next
    WHERE w.client = next.client
        AND w.waiter = next.waiter
    RETURNING w.client, w.waiter
)
SELECT pg_notify('gatepost', moved.client || ':' || moved.waiter::text)
FROM moved;
