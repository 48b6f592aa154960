-- LeaseAcquire takes a name that is free, and not reserved for another holder, or
-- expired, in one statement, and always returns one row: token 0 means not granted, and then held and the
-- holder columns say who has it, as read without a lock. A busy try locks
-- nothing and writes nothing. SKIP LOCKED: an acquire that waited could be
-- granted after its caller gave up. FOR UPDATE, not FOR NO KEY UPDATE: it must
-- not pass a fence. The clock is read after the lock and the expiry is tested
-- against that reading; the join is on the key only, because the UPDATE scans
-- an older snapshot than the version that was locked. The token is minted here
-- and nowhere else. ON CONFLICT names no index: with (name, slot) alone, two first
-- INSERTs in the same microsecond can meet in leases_token_key, and that is an
-- error. Only the first INSERT of a name can wait, for another one,
-- and its values are computed before: waited_us tells how long ago that was, and
-- the caller hands a late grant back; the settings bound that wait, and make an
-- asynchronous commit a durable one, since a grant that was answered must survive
-- a crash; a stronger setting is left. Runs at READ COMMITTED.
-- name: LeaseAcquire :one
WITH settings AS MATERIALIZED (
    SELECT
        set_config('lock_timeout', '100', true) AS lock_timeout,
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit
), seen AS MATERIALIZED (
    SELECT
        l.token,
        coalesce(l.holder, l.reserved_for) AS holder,
        l.acquired_at,
        coalesce(l.reserved_until, l.expires_at) AS expires_at,
        (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp())
            OR (l.reserved_until > clock_timestamp() AND l.reserved_for <> @holder::text) AS held
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
), locked AS MATERIALIZED (
    SELECT l.name, l.slot, l.token, l.nonce, l.expires_at, l.reserved_for, l.reserved_until
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND (l.nonce IS NULL OR l.expires_at <= clock_timestamp())
        AND (l.reserved_for IS NULL OR l.reserved_for = @holder::text OR l.reserved_until <= clock_timestamp())
    FOR UPDATE SKIP LOCKED
), clocked AS MATERIALIZED (
    SELECT
        locked.name,
        locked.slot,
        locked.token,
        locked.nonce,
        locked.expires_at,
        locked.reserved_for,
        locked.reserved_until,
        clock_timestamp() AS at
    FROM locked
), taken AS (
    UPDATE gatepost.leases AS l
    SET
        token = greatest(clocked.token + 1, (extract(epoch FROM clocked.at) * 1000000)::bigint),
        nonce = (@nonce::text)::uuid,
        holder = @holder::text,
        acquired_at = clocked.at,
        renewed_at = clocked.at,
        expires_at = clocked.at + sqlc.arg(ttl_us)::bigint * interval '1 microsecond',
        transitions = l.transitions + 1,
        data = (sqlc.narg(data)::text)::jsonb,
        reserved_for = NULL,
        reserved_until = NULL
    FROM clocked
    WHERE l.name = clocked.name
        AND l.slot = clocked.slot
        AND (clocked.nonce IS NULL OR clocked.expires_at <= clocked.at)
        AND (clocked.reserved_for IS NULL OR clocked.reserved_for = @holder::text OR clocked.reserved_until <= clocked.at)
    RETURNING l.token, l.transitions
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
        n.at + sqlc.arg(ttl_us)::bigint * interval '1 microsecond',
        1,
        (sqlc.narg(data)::text)::jsonb
    FROM settings
    CROSS JOIN (SELECT clock_timestamp() AS at) AS n
    WHERE NOT EXISTS (SELECT FROM seen)
    ON CONFLICT DO NOTHING
    RETURNING l.token, l.transitions, l.acquired_at
), granted AS (
    SELECT taken.token, taken.transitions, NULL::timestamptz AS made_at FROM taken
    UNION ALL
    SELECT made.token, made.transitions, made.acquired_at FROM made
)
SELECT
    coalesce(g.token, 0)::bigint AS token,
    coalesce(g.transitions, 0)::bigint AS transitions,
    coalesce(extract(epoch FROM clock_timestamp() - g.made_at) * 1000000, 0)::bigint AS waited_us,
    coalesce(s.held, false)::boolean AS held,
    coalesce(s.holder, '')::text AS held_by,
    coalesce(s.token, 0)::bigint AS held_token,
    coalesce(s.acquired_at, 'epoch')::timestamptz AS held_since,
    coalesce(s.expires_at, 'epoch')::timestamptz AS held_until,
    coalesce(extract(epoch FROM s.expires_at - clock_timestamp()) * 1000000, 0)::bigint AS held_for_us
FROM settings
LEFT JOIN granted AS g ON true
LEFT JOIN seen AS s ON true;

-- LeaseByNonce finds out whether an acquisition whose answer was lost was
-- granted. No row: not, or not yet.
-- name: LeaseByNonce :one
SELECT l.token, l.transitions
FROM gatepost.leases AS l
WHERE l.name = @name
    AND l.slot = @slot
    AND l.nonce = (@nonce::text)::uuid
    AND l.expires_at > clock_timestamp();

-- LeaseRelease frees a name that this acquisition holds, expired or not. It
-- keeps the row and its token, and changes no column of the unique index, so it
-- never waits for a fenced transaction. The token is compared only when it is
-- known: after an acquire without an answer there is only the nonce, which is
-- enough. A name can be reserved for one holder for a while. No row: not ours any
-- more, nothing is changed.
-- name: LeaseRelease :one
WITH locked AS MATERIALIZED (
    SELECT l.name, l.slot, l.expires_at
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND l.nonce = (@nonce::text)::uuid
        AND l.token = coalesce(sqlc.narg(token)::bigint, l.token)
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
), seen AS MATERIALIZED (
    SELECT w.ord, l.expires_at <= clock_timestamp() AS lapsed
    FROM wanted AS w
    JOIN gatepost.leases AS l ON l.name = w.name AND l.slot = w.slot
    WHERE l.token = w.token
        AND l.nonce = w.nonce
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
        expires_at = clocked.at + clocked.ttl_us * interval '1 microsecond'
    FROM clocked
    WHERE l.name = clocked.name
        AND l.slot = clocked.slot
        AND clocked.expires_at > clocked.at
    RETURNING clocked.ord
)
SELECT
    w.ord::int AS ord,
    (r.ord IS NOT NULL)::boolean AS renewed,
    (s.ord IS NOT NULL)::boolean AS mine,
    coalesce(s.lapsed, false)::boolean AS lapsed
FROM settings
CROSS JOIN wanted AS w
LEFT JOIN seen AS s ON s.ord = w.ord
LEFT JOIN renewed AS r ON r.ord = w.ord;
