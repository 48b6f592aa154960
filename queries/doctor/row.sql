-- KeyBacklog counts, up to a limit, the idempotency keys that a collection would have
-- removed that long ago, and tells the age of the oldest: how long ago it expired.
-- name: KeyBacklog :one
SELECT
    count(*)::bigint AS expired,
    coalesce(extract(epoch FROM clock_timestamp() - min(due.expires_at)) * 1000000, 0)::bigint AS age_us
FROM (
    SELECT k.expires_at
    FROM gatepost.idempotency_keys AS k
    WHERE k.expires_at <= (SELECT clock_timestamp() - sqlc.arg(age_us)::bigint * interval '1 microsecond')
        AND NOT (k.state = 1 AND coalesce(k.lease_until > clock_timestamp(), false))
    ORDER BY k.expires_at
    LIMIT sqlc.arg(most)::integer
) AS due;

-- KeyRunning counts the claims that look as if they ran: those of transaction mode,
-- which must not be seen at all, and those of lease mode that lapsed that long ago. It
-- reads all keys.
-- name: KeyRunning :many
SELECT
    k.operation::text AS operation,
    (k.lease_until IS NULL)::boolean AS in_transaction,
    count(*)::bigint AS claims,
    coalesce(extract(epoch FROM clock_timestamp() - min(coalesce(k.lease_until, k.created_at))) * 1000000, 0)::bigint AS age_us
FROM gatepost.idempotency_keys AS k
WHERE k.state = 1
    AND coalesce(k.lease_until < (SELECT clock_timestamp() - sqlc.arg(age_us)::bigint * interval '1 microsecond'), true)
GROUP BY 1, 2
ORDER BY 2, 1;

-- LeaseClock compares what the clock has put into the leases with the clock: by how
-- much the highest token, and the last renewal, lie behind it; negative where they lie
-- before it. Its clock is read last.
-- name: LeaseClock :one
SELECT
    coalesce(extract(epoch FROM clock_timestamp()) * 1000000 - newest.token, 0)::bigint AS token_us,
    coalesce(extract(epoch FROM clock_timestamp() - newest.renewed_at) * 1000000, 0)::bigint AS renewed_us,
    coalesce(newest.transitions, 0)::bigint AS transitions
FROM (
    SELECT max(l.token)::bigint AS token, max(l.renewed_at) AS renewed_at, sum(l.transitions) AS transitions
    FROM gatepost.leases AS l
) AS newest;

-- LeaseLapsed reads the leases that lapsed that long ago and were neither released nor
-- taken over, the longest first and at most so many; lapsed counts them all.
-- name: LeaseLapsed :many
SELECT
    l.name::text AS name,
    l.token::bigint AS token,
    l.holder::text AS holder,
    (extract(epoch FROM clock_timestamp() - l.expires_at) * 1000000)::bigint AS age_us,
    (count(*) OVER ())::bigint AS lapsed
FROM gatepost.leases AS l
WHERE l.holder IS NOT NULL
    AND l.expires_at < clock_timestamp() - sqlc.arg(age_us)::bigint * interval '1 microsecond'
ORDER BY l.expires_at
LIMIT sqlc.arg(most)::integer;

-- LeaseOverlong reads the leases and reservations that last longer from now on than the
-- longest that a program can ask for, the latest first and at most so many; overlong counts
-- them all.
-- name: LeaseOverlong :many
SELECT
    l.name::text AS name,
    l.slot::integer AS slot,
    l.token::bigint AS token,
    coalesce(l.holder, l.reserved_for, '')::text AS holder,
    (l.holder IS NOT NULL AND l.expires_at > r.latest)::boolean AS held,
    (CASE WHEN l.holder IS NOT NULL AND l.expires_at > r.latest THEN l.expires_at ELSE l.reserved_until END)::timestamptz AS until,
    (count(*) OVER ())::bigint AS overlong
FROM gatepost.leases AS l
CROSS JOIN (
    SELECT clock_timestamp() + sqlc.arg(most_us)::bigint * interval '1 microsecond' AS latest
) AS r
WHERE (l.holder IS NOT NULL AND l.expires_at > r.latest)
    OR l.reserved_until > r.latest
ORDER BY greatest(l.expires_at, l.reserved_until) DESC, l.name, l.slot
LIMIT sqlc.arg(most)::integer;
