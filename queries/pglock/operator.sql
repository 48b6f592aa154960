-- IdentifierParse takes a name apart as SQL does: parts by the dots, folded unless quoted.
-- name: IdentifierParse :one
SELECT parse_ident(@text::text)::text[] AS parts;

-- LeaseDetail reads, without a lock, what LeaseGet leaves out: for whom a free name
-- is kept, and until when: without a name, reserved_until means nothing (LeaseFree).
-- name: LeaseDetail :one
SELECT
    coalesce(l.reserved_for, '')::text AS reserved_for,
    (CASE WHEN l.reserved_for IS NOT NULL THEN l.reserved_until END)::timestamptz AS reserved_until
FROM gatepost.leases AS l
WHERE l.name = @name
    AND l.slot = @slot;

-- LeaseLockers finds, without a lock, the open transactions that lock a lease's row:
-- fenced ones, mostly. The row says in xmax the transaction, or the number of a set of
-- them; which of the two is not to be seen, so both are looked up, and only a
-- transaction that has locked rows of gatepost.leases counts. pid is 0 for a prepared
-- transaction, which gid names. What pg_stat_activity doesn't show to this role is
-- empty.
-- name: LeaseLockers :many
WITH lease AS MATERIALIZED (
    SELECT
        l.xmax::text::xid AS single,
        CASE
            WHEN mxid_age(l.xmax::text::xid) BETWEEN 1 AND (SELECT max(mxid_age(d.datminmxid)) FROM pg_catalog.pg_database AS d)
            THEN l.xmax::text::xid
        END AS several
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
), member AS (
    SELECT lease.single AS xid
    FROM lease
    UNION
    SELECT m.xid
    FROM lease
    CROSS JOIN LATERAL pg_get_multixact_members(lease.several) AS m
), locker AS (
    SELECT DISTINCT x.virtualtransaction, coalesce(x.pid, 0) AS pid, CASE WHEN x.pid IS NULL THEN x.transactionid END AS prepared
    FROM member
    JOIN pg_catalog.pg_locks AS x ON x.transactionid = member.xid
    WHERE x.locktype = 'transactionid'
        AND x.mode = 'ExclusiveLock'
        AND x.granted
)
SELECT
    locker.pid::integer AS pid,
    coalesce(p.gid, '')::text AS gid,
    coalesce(a.usename::text, p.owner::text, '')::text AS username,
    coalesce(a.application_name, '')::text AS application,
    coalesce(host(a.client_addr), '')::text AS address,
    coalesce(a.state, '')::text AS state,
    coalesce(a.wait_event, '')::text AS wait_event,
    a.xact_start::timestamptz AS since,
    coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)) * 1000000, 0)::bigint AS open_us,
    coalesce(extract(epoch FROM clock_timestamp() - a.state_change) * 1000000, 0)::bigint AS state_us
FROM locker
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = locker.pid
LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = locker.prepared
WHERE EXISTS (
    SELECT
    FROM pg_catalog.pg_locks AS r
    WHERE r.virtualtransaction = locker.virtualtransaction
        AND r.locktype = 'relation'
        AND r.relation = 'gatepost.leases'::regclass
        AND r.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
)
ORDER BY locker.pid, p.gid;

-- LeaseReleaseByToken frees a name for an operator, who knows the token of the
-- acquisition that is to end, and not its nonce. Like LeaseRelease it keeps the row and its
-- token and never waits for a fenced transaction. Who did it is left in data, until the
-- next acquisition. No row: the name has another token, or is free; nothing is changed.
-- Runs at READ COMMITTED: it waits for a row lock, and tests what it locked.
-- name: LeaseReleaseByToken :one
WITH locked AS MATERIALIZED (
    SELECT l.name, l.slot, l.token, l.holder, l.acquired_at, l.expires_at
    FROM gatepost.leases AS l
    WHERE l.name = @name
        AND l.slot = @slot
        AND l.token = @token
        AND l.nonce IS NOT NULL
    FOR NO KEY UPDATE
), clocked AS MATERIALIZED (
    SELECT locked.name, locked.slot, locked.token, locked.holder, locked.acquired_at, locked.expires_at, clock_timestamp() AS at
    FROM locked
)
UPDATE gatepost.leases AS l
SET
    nonce = NULL,
    holder = NULL,
    data = jsonb_build_object('released_by_operator', jsonb_strip_nulls(jsonb_build_object(
        'by', @operator::text,
        'role', session_user::text,
        'at', clocked.at,
        'token', clocked.token::text,
        'holder', clocked.holder::text,
        'reason', nullif(@reason::text, '')
    ))),
    renewed_at = clocked.at,
    expires_at = clocked.at,
    reserved_for = NULL,
    reserved_until = NULL
FROM clocked
WHERE l.name = clocked.name
    AND l.slot = clocked.slot
RETURNING
    clocked.holder::text AS holder,
    session_user::text AS role,
    clocked.at::timestamptz AS at,
    (extract(epoch FROM clocked.at - clocked.acquired_at) * 1000000)::bigint AS held_us,
    (extract(epoch FROM clocked.expires_at - clocked.at) * 1000000)::bigint AS left_us;

-- LockerTerminate ends a backend and waits for its end, if it is still in a transaction
-- that began before a moment: its number may be another's by now. ended is false when it
-- went on for too long. No row: it has ended, or it is in another transaction, or this role
-- may not see that; nothing was done.
-- name: LockerTerminate :one
SELECT pg_terminate_backend(a.pid, sqlc.arg(wait_ms)::bigint)::boolean AS ended
FROM pg_catalog.pg_stat_activity AS a
WHERE a.pid = @pid::integer
    AND a.xact_start < @before::timestamptz;

-- TableNames lists tables, partitioned ones too and partitions not, by their names as
-- they are written in SQL, with their schema and those that are found without it also
-- as that. Not PostgreSQL's own, and not Gatepost's.
-- name: TableNames :many
SELECT found.name::text AS name
FROM (
    SELECT format('%I.%I', n.nspname, c.relname) AS name
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p')
        AND NOT c.relispartition
        AND n.nspname !~ '^pg_'
        AND n.nspname NOT IN ('information_schema', 'gatepost')
    UNION ALL
    SELECT format('%I', c.relname) AS name
    FROM pg_catalog.pg_class AS c
    JOIN pg_catalog.pg_namespace AS n ON n.oid = c.relnamespace
    WHERE c.relkind IN ('r', 'p')
        AND NOT c.relispartition
        AND n.nspname !~ '^pg_'
        AND n.nspname NOT IN ('information_schema', 'gatepost')
        AND pg_table_is_visible(c.oid)
) AS found
WHERE starts_with(found.name, @prefix::text)
ORDER BY found.name
LIMIT sqlc.arg(most)::integer;

-- TablePresent says whether there is a relation of that name, in the schemas of
-- search_path where the name has none.
-- name: TablePresent :one
SELECT (to_regclass(@relation::text) IS NOT NULL)::boolean AS present;

-- WaiterCounts counts the clients that wait for names, without a lock. A name that
-- nobody waits for is left out.
-- name: WaiterCounts :many
SELECT w.name, count(*)::bigint AS clients
FROM gatepost.waiters AS w
WHERE w.name = ANY (@names::text[])
    AND w.slot = @slot
    AND w.expires_at > clock_timestamp()
GROUP BY w.name;

-- WaiterList reads who waits for a name, without a lock, in the order in which they
-- are woken.
-- name: WaiterList :many
SELECT
    w.holder,
    w.since,
    (extract(epoch FROM clock_timestamp() - w.since) * 1000000)::bigint AS waited_us
FROM gatepost.waiters AS w
WHERE w.name = @name
    AND w.slot = @slot
    AND w.expires_at > clock_timestamp()
ORDER BY w.since, w.client;
