-- LeaseByNonce finds out whether an acquisition whose answer was lost was
-- granted. No row: not, or not yet.
-- name: LeaseByNonce :one
SELECT l.token
FROM gatepost.leases AS l
WHERE l.name = @name
    AND l.slot = @slot
    AND l.nonce = (@nonce::text)::uuid
    AND l.expires_at > clock_timestamp();

-- LeaseFree is LeaseRelease where nobody is to have the name next and the token is
-- known, without a lock before the UPDATE: what that compares never changes back,
-- and the clock that decides is read after it. The old expiry goes through
-- reserved_until, which means nothing without reserved_for, because RETURNING can't
-- see the old row before PostgreSQL 18. waited says that somebody may wait: it runs behind
-- WaiterHoldOff, in one transaction, whose snapshot is then the newer one at READ
-- COMMITTED only. Its commit is asynchronous, as that of LeaseRelease. No row, or 40001
-- outside READ COMMITTED: it is for LeaseRelease to say why.
-- name: LeaseFree :one
UPDATE gatepost.leases AS l
SET
    nonce = NULL,
    holder = NULL,
    data = NULL,
    renewed_at = statement_timestamp(),
    expires_at = statement_timestamp(),
    reserved_for = NULL,
    reserved_until = l.expires_at
WHERE l.name = @name
    AND l.slot = @slot
    AND l.nonce = (@nonce::text)::uuid
    AND l.token = sqlc.arg(token)::bigint
    AND set_config('synchronous_commit', 'off', true) = 'off'
RETURNING
    (l.reserved_until > clock_timestamp())::boolean AS live,
    (
        current_setting('transaction_isolation') <> 'read committed'
        OR EXISTS (
            SELECT
            FROM gatepost.waiters AS w
            WHERE w.name = @name
                AND w.slot = @slot
                AND w.expires_at > clock_timestamp()
        )
    )::boolean AS waited;

-- LeaseInsert makes the row of a name that was never acquired, or was collected,
-- and grants it. No row: another first INSERT came before. ON CONFLICT names no index:
-- with (name, slot) alone, two first INSERTs in the same microsecond can meet in
-- leases_token_key, and that is an error. It can wait for another first INSERT,
-- and its values are computed before: waited_us tells how long ago that was, and
-- the caller hands a late grant back; the settings bound that wait, and make an
-- asynchronous commit a durable one, since a grant that was answered must survive
-- a crash; a stronger setting is left. Runs at READ COMMITTED.
-- name: LeaseInsert :one
WITH settings AS MATERIALIZED (
    SELECT
        set_config('lock_timeout', '100', true) AS lock_timeout,
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit
), made AS (
    INSERT INTO gatepost.leases AS l (name, slot, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions, data)
    SELECT
        @name,
        @slot,
        (extract(epoch FROM n.at) * 1000000)::bigint,
        (@nonce::text)::uuid,
        @holder::text,
        n.at,
        n.at,
        n.at + (sqlc.arg(ttl_us)::bigint)::gatepost.lease_ttl * interval '1 microsecond',
        1,
        (sqlc.narg(data)::text)::jsonb
    FROM settings
    CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    ON CONFLICT DO NOTHING
    RETURNING l.token, l.acquired_at
)
SELECT
    made.token::bigint AS token,
    (extract(epoch FROM clock_timestamp() - made.acquired_at) * 1000000)::bigint AS waited_us
FROM made;

-- LeaseLook tells, without a lock, why a name could not be taken: held says that
-- somebody holds it, or that it is reserved for somebody else. Not held: a fence, or for
-- a moment another statement, has the row. read_committed tells whether LeaseTake
-- could have run by itself. No row: LeaseInsert is to make it.
-- name: LeaseLook :one
SELECT
    coalesce(
        (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp())
            OR (l.reserved_until > clock_timestamp() AND l.reserved_for <> @holder::text),
        false
    )::boolean AS held,
    coalesce(l.holder, l.reserved_for, '')::text AS holder,
    l.token::bigint AS token,
    l.acquired_at,
    until.at::timestamptz AS expires_at,
    (extract(epoch FROM until.at - clock_timestamp()) * 1000000)::bigint AS left_us,
    (current_setting('transaction_isolation') = 'read committed')::boolean AS read_committed
FROM gatepost.leases AS l
CROSS JOIN LATERAL (
    SELECT CASE WHEN l.nonce IS NULL AND l.reserved_for IS NOT NULL THEN coalesce(l.reserved_until, l.expires_at) ELSE l.expires_at END AS at
) AS until
WHERE l.name = @name
    AND l.slot = @slot;

-- LeaseRelease frees a name that this acquisition holds, expired or not. It
-- keeps the row and its token, and changes no column of the unique index, so it
-- never waits for a fenced transaction. The token is compared only when it is
-- known: after an acquire without an answer there is only the nonce, which is
-- enough. A name can be reserved for one holder for a while. The commit is
-- asynchronous: a grant that follows is durable, and what comes before it in the log is so
-- with it; without one, a crash leaves the lease with who gave it back, until it expires.
-- No row: not ours any more, nothing is changed.
-- name: LeaseRelease :one
WITH locked AS MATERIALIZED (
    SELECT l.name, l.slot, l.expires_at
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND l.nonce = (@nonce::text)::uuid
        AND l.token = coalesce(sqlc.narg(token)::bigint, l.token)
        AND set_config('synchronous_commit', 'off', true) = 'off'
    FOR NO KEY UPDATE
), clocked AS MATERIALIZED (
    SELECT
        locked.name,
        locked.slot,
        locked.expires_at,
        clock_timestamp() AS at,
        clock_timestamp() + sqlc.narg(reserve_us)::bigint * interval '1 microsecond' AS reserved_until
    FROM locked
)
UPDATE gatepost.leases AS l
SET
    nonce = NULL,
    holder = NULL,
    data = NULL,
    renewed_at = clocked.at,
    expires_at = clocked.at,
    reserved_for = sqlc.narg(reserved_for)::text,
    reserved_until = clocked.reserved_until
FROM clocked
WHERE l.name = clocked.name
    AND l.slot = clocked.slot
RETURNING (clocked.expires_at > clocked.at)::boolean AS live;

-- LeaseRenew extends leases by their TTL from the database's clock, one row out
-- for each in. It touches a lease only where name, token and nonce are all the
-- caller's and it hasn't expired, and it changes nothing that it compares, so a
-- renewal whose reply was lost can be repeated. The rows are locked in key
-- order, and one that somebody else has locked is skipped: transient, not
-- "not yours". FOR NO KEY UPDATE passes a fence. The clock is read after the
-- lock. An asynchronous commit is made a durable one, as for a grant. A row out
-- is: renewed; or mine (the row still carries our token and
-- nonce; it was skipped, or changed meanwhile, unless lapsed says that it
-- expired); or neither: another has it.
-- name: LeaseRenew :many
WITH settings AS MATERIALIZED (
    SELECT
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit
), wanted AS MATERIALIZED (
    SELECT
        generate_subscripts(@names::text[], 1) AS ord,
        unnest(@names::text[]) AS name,
        unnest(@slots::int[]) AS slot,
        unnest(@tokens::bigint[]) AS token,
        unnest((@nonces::text[])::uuid[]) AS nonce,
        unnest(@ttls_us::bigint[]) AS ttl_us
), locked AS MATERIALIZED (
    SELECT w.ord, w.ttl_us, w.token AS want_token, w.nonce AS want_nonce, l.name, l.slot, l.token, l.nonce, l.expires_at
    FROM wanted AS w
    JOIN gatepost.leases AS l ON l.name = w.name AND l.slot = w.slot
    WHERE l.token = w.token
        AND l.nonce = w.nonce
    ORDER BY l.name, l.slot
    FOR NO KEY UPDATE OF l SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT locked.ord, locked.ttl_us, locked.name, locked.slot, locked.expires_at, clock_timestamp() AS at
    FROM locked
    WHERE locked.token = locked.want_token
        AND locked.nonce = locked.want_nonce
), renewed AS (
    UPDATE gatepost.leases AS l
    SET
        renewed_at = clocked.at,
        expires_at = clocked.at + clocked.ttl_us::gatepost.lease_ttl * interval '1 microsecond'
    FROM clocked
    WHERE l.name = clocked.name
        AND l.slot = clocked.slot
        AND clocked.expires_at > clocked.at
    RETURNING clocked.ord
)
SELECT
    w.ord::int AS ord,
    (r.ord IS NOT NULL)::boolean AS renewed,
    (r.ord IS NOT NULL OR s.lapsed IS NOT NULL)::boolean AS mine,
    coalesce(s.lapsed, false)::boolean AS lapsed
FROM settings
CROSS JOIN wanted AS w
LEFT JOIN renewed AS r ON r.ord = w.ord
LEFT JOIN LATERAL ( -- only where it was not renewed
    SELECT l.expires_at <= clock_timestamp() AS lapsed
    FROM gatepost.leases AS l
    WHERE r.ord IS NULL
        AND l.name = w.name
        AND l.slot = w.slot
        AND l.token = w.token
        AND l.nonce = w.nonce
) AS s ON true;

-- LeaseTake takes a name whose row is there and free, not reserved for another
-- holder, or expired. No row: not granted, and nothing was written or locked; LeaseLook
-- tells why. SKIP LOCKED: an acquire that waited could be granted after its
-- caller gave up. FOR UPDATE, not FOR NO KEY UPDATE: it must not pass a fence. The
-- clock is read after the lock and the expiry is tested against that reading, on
-- the version that was locked; the join is on the key only, because the UPDATE
-- scans an older snapshot. The token is minted here, and in LeaseInsert for the first.
-- An asynchronous commit is made a durable one. It may run by itself: outside READ
-- COMMITTED, where the lock can fail with 40001, it does nothing.
-- name: LeaseTake :one
UPDATE gatepost.leases AS l
SET
    token = greatest(clocked.token + 1, (extract(epoch FROM clocked.at) * 1000000)::bigint),
    nonce = (@nonce::text)::uuid,
    holder = @holder::text,
    acquired_at = clocked.at,
    renewed_at = clocked.at,
    expires_at = clocked.at + (sqlc.arg(ttl_us)::bigint)::gatepost.lease_ttl * interval '1 microsecond',
    transitions = clocked.transitions + 1,
    data = (sqlc.narg(data)::text)::jsonb,
    reserved_for = NULL,
    reserved_until = NULL
FROM (
    SELECT
        locked.token,
        locked.nonce,
        locked.expires_at,
        locked.transitions,
        locked.reserved_for,
        locked.reserved_until,
        clock_timestamp() AS at
    FROM (
        SELECT f.token, f.nonce, f.expires_at, f.transitions, f.reserved_for, f.reserved_until
        FROM gatepost.leases AS f
        WHERE f.name = @name
            AND f.slot = @slot
            AND (f.nonce IS NULL OR f.expires_at <= clock_timestamp())
            AND (f.reserved_for IS NULL OR f.reserved_for = @holder::text OR f.reserved_until <= clock_timestamp())
            AND current_setting('transaction_isolation') = 'read committed'
        FOR UPDATE SKIP LOCKED
    ) AS locked
    OFFSET 0 -- a fence for the planner: the clock is read above the lock
) AS clocked
WHERE l.name = @name
    AND l.slot = @slot
    AND (clocked.nonce IS NULL OR clocked.expires_at <= clocked.at)
    AND (clocked.reserved_for IS NULL OR clocked.reserved_for = @holder::text OR clocked.reserved_until <= clocked.at)
    AND CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
        THEN set_config('synchronous_commit', 'on', true) = 'on' ELSE true END
RETURNING l.token::bigint AS token;
