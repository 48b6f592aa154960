-- KeyBacklog counts the rows that KeyCollect would remove, up to a limit, and tells
-- the age of the oldest: how long ago it expired.
-- name: KeyBacklog :one
SELECT
    count(*)::bigint AS expired,
    coalesce(extract(epoch FROM clock_timestamp() - min(due.expires_at)) * 1000000, 0)::bigint AS age_us
FROM (
    SELECT k.expires_at
    FROM gatepost.idempotency_keys AS k
    WHERE k.expires_at <= (SELECT clock_timestamp())
        AND NOT (k.state = 1 AND coalesce(k.lease_until > clock_timestamp(), false))
    ORDER BY k.expires_at
    LIMIT sqlc.arg(most)::integer
) AS due;

-- KeyCollect removes expired rows, the oldest first and at most so many, and their
-- steps with them; never a claim with a live lease. The locking SELECT tests its
-- conditions again on the version that it locked, so a row that was claimed anew
-- meanwhile stays; rows that somebody has locked, another collection for example, are
-- skipped. The clock in a sub-select is one value, which the index on expires_at can
-- be searched for; a volatile function could not. What was locked is deleted by its
-- place: a version that this statement's snapshot can't see is left to the next one.
-- Runs at READ COMMITTED.
-- name: KeyCollect :one
WITH removed AS (
    DELETE FROM gatepost.idempotency_keys AS k
    WHERE k.ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM gatepost.idempotency_keys AS due
        WHERE due.expires_at <= (SELECT clock_timestamp())
            AND NOT (due.state = 1 AND coalesce(due.lease_until > clock_timestamp(), false))
        ORDER BY due.expires_at
        LIMIT sqlc.arg(most)::integer
        FOR UPDATE SKIP LOCKED
    ))
    RETURNING k.state
)
SELECT count(*)::bigint AS removed
FROM removed;

-- KeyForget removes one row and its steps, unless a claim of it is live: one with a
-- lease that has not lapsed, or one of transaction mode that is uncommitted, which
-- holds the advisory lock (open is false then). It never waits: a row that is locked
-- is one that somebody works with. found says whether there was a row. Runs at READ
-- COMMITTED.
-- name: KeyForget :one
WITH gate AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(sqlc.arg(lock_id)::bigint) AS open
), seen AS MATERIALIZED (
    SELECT
        CASE WHEN k.state = 1 AND k.lease_until > n.at THEN k.lease_until - n.at ELSE interval '0' END AS lease_left
    FROM gatepost.idempotency_keys AS k
    CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
), locked AS MATERIALIZED (
    SELECT k.operation, k.scope, k.key
    FROM gate
    CROSS JOIN gatepost.idempotency_keys AS k
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
        AND gate.open
        AND NOT (k.state = 1 AND coalesce(k.lease_until > clock_timestamp(), false))
    FOR UPDATE OF k SKIP LOCKED
), removed AS (
    DELETE FROM gatepost.idempotency_keys AS k
    USING locked
    WHERE k.operation = locked.operation
        AND k.scope = locked.scope
        AND k.key = locked.key
    RETURNING true AS gone
)
SELECT
    gate.open::boolean AS open,
    (s.lease_left IS NOT NULL)::boolean AS found,
    coalesce(r.gone, false)::boolean AS removed,
    coalesce(extract(epoch FROM s.lease_left) * 1000000, 0)::bigint AS lease_left_us
FROM gate
LEFT JOIN seen AS s ON true
LEFT JOIN removed AS r ON true;
