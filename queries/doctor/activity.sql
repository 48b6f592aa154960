-- HorizonList reads the transactions that keep rows of this database from being
-- removed, but this one, that are open for that long. gid names a prepared one. Other
-- roles' are missing where this role may not see them.
-- name: HorizonList :many
SELECT
    a.pid::integer AS pid,
    ''::text AS gid,
    coalesce(a.usename::text, '')::text AS username,
    coalesce(a.application_name, '')::text AS application,
    coalesce(a.state, '')::text AS state,
    (extract(epoch FROM clock_timestamp() - a.xact_start) * 1000000)::bigint AS open_us
FROM pg_catalog.pg_stat_activity AS a
WHERE a.datname = current_database()
    AND a.backend_type = 'client backend'
    AND a.pid <> pg_backend_pid()
    AND a.xact_start < clock_timestamp() - sqlc.arg(open_us)::bigint * interval '1 microsecond'
    AND coalesce(a.backend_xmin, a.backend_xid) IS NOT NULL
UNION ALL
SELECT
    0,
    p.gid,
    coalesce(p.owner::text, ''),
    '',
    '',
    (extract(epoch FROM clock_timestamp() - p.prepared) * 1000000)::bigint
FROM pg_catalog.pg_prepared_xacts AS p
WHERE p.database = current_database()
    AND p.prepared < clock_timestamp() - sqlc.arg(open_us)::bigint * interval '1 microsecond'
ORDER BY open_us DESC;

-- LeaseLockers finds, without a lock, the open transactions that lock rows of leases,
-- with the leases: fenced ones, mostly. A row says in xmax the transaction, or the
-- number of a set of them; which of the two is not to be seen, so both are looked up,
-- and only a transaction that has locked rows of gatepost.leases counts. pid is 0 for a
-- prepared transaction, which gid names. What pg_stat_activity doesn't show to this
-- role is empty.
-- name: LeaseLockers :many
WITH locker AS MATERIALIZED (
    SELECT DISTINCT x.transactionid AS xid, coalesce(x.pid, 0) AS pid, CASE WHEN x.pid IS NULL THEN x.transactionid END AS prepared
    FROM pg_catalog.pg_locks AS r
    JOIN pg_catalog.pg_locks AS x ON x.virtualtransaction = r.virtualtransaction
    WHERE r.locktype = 'relation'
        AND r.relation = 'gatepost.leases'::regclass
        AND r.database = (SELECT d.oid FROM pg_catalog.pg_database AS d WHERE d.datname = current_database())
        AND r.mode <> 'AccessShareLock'
        AND x.locktype = 'transactionid'
        AND x.mode = 'ExclusiveLock'
        AND x.granted
), locked AS (
    SELECT l.name::text AS name, l.token::bigint AS token, locker.xid
    FROM gatepost.leases AS l
    JOIN locker ON locker.xid = l.xmax::text::xid
    UNION
    SELECT l.name::text, l.token::bigint, locker.xid
    FROM gatepost.leases AS l
    CROSS JOIN LATERAL pg_get_multixact_members(
        CASE
            WHEN mxid_age(l.xmax::text::xid) BETWEEN 1 AND (SELECT max(mxid_age(d.datminmxid)) FROM pg_catalog.pg_database AS d)
            THEN l.xmax::text::xid
        END
    ) AS m
    JOIN locker ON locker.xid = m.xid
    WHERE l.xmax::text <> '0' -- in no time: it is most of them
        AND EXISTS (SELECT FROM locker)
)
SELECT
    locked.name::text AS name,
    locked.token::bigint AS token,
    locker.pid::integer AS pid,
    coalesce(p.gid, '')::text AS gid,
    coalesce(a.usename::text, p.owner::text, '')::text AS username,
    coalesce(a.application_name, '')::text AS application,
    coalesce(host(a.client_addr), '')::text AS address,
    coalesce(a.state, '')::text AS state,
    coalesce(a.wait_event, '')::text AS wait_event,
    coalesce(extract(epoch FROM clock_timestamp() - coalesce(a.xact_start, p.prepared)) * 1000000, 0)::bigint AS open_us,
    coalesce(extract(epoch FROM clock_timestamp() - a.state_change) * 1000000, 0)::bigint AS state_us
FROM locker
JOIN locked ON locked.xid = locker.xid
LEFT JOIN pg_catalog.pg_stat_activity AS a ON a.pid = locker.pid
LEFT JOIN pg_catalog.pg_prepared_xacts AS p ON p.transaction = locker.prepared
ORDER BY coalesce(a.xact_start, p.prepared), locker.pid, p.gid, locked.name;
