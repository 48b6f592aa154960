-- LeaseBacklog counts the rows that LeaseCollect would remove, up to a limit, and
-- tells for how long the one that has been free longest has been. It reads the whole
-- table: an index on expires_at would cost each heartbeat more than that.
-- name: LeaseBacklog :one
SELECT
    count(*)::bigint AS due,
    coalesce(extract(epoch FROM clock_timestamp() - min(due.expires_at)) * 1000000, 0)::bigint AS age_us
FROM (
    SELECT l.expires_at
    FROM gatepost.leases AS l
    CROSS JOIN (SELECT clock_timestamp() - interval '7 days' AS at) AS week
    WHERE l.expires_at <= week.at
        AND l.token <= extract(epoch FROM week.at) * 1000000
        AND (l.reserved_for IS NULL OR l.reserved_until <= week.at)
    LIMIT sqlc.arg(most)::integer
) AS due;

-- LeaseCollect reads names in their order, from behind one on and at most so many,
-- and removes at most so many rows of those that have been free for a week: released,
-- or lapsed and taken by nobody. It returns the last that it read, to go on there, how
-- many it read, and how many it removed. A row that somebody has locked is skipped,
-- and FOR UPDATE doesn't pass the lock of a fence. The locking SELECT tests its
-- conditions again on the version that it locked, so a name that was acquired
-- meanwhile stays; what was locked is deleted by its place, and a version that this
-- statement's snapshot can't see is left to the next time. The next token of a removed
-- name comes from the clock alone, so a row stays whose token is not a week behind the
-- clock: the clock was set back, or a backup was restored. Runs at READ COMMITTED.
-- name: LeaseCollect :one
WITH page AS MATERIALIZED (
    SELECT
        l.name,
        l.slot,
        l.expires_at <= clock_timestamp() - interval '7 days' AS due
    FROM gatepost.leases AS l
    WHERE (l.name, l.slot) > (@after_name::text, @after_slot::integer)
    ORDER BY l.name, l.slot
    LIMIT sqlc.arg(most)::integer
), week AS MATERIALIZED (
    SELECT clock_timestamp() - interval '7 days' AS at
), removed AS (
    DELETE FROM gatepost.leases AS l
    WHERE l.ctid = ANY (ARRAY(
        SELECT due.ctid
        FROM page
        CROSS JOIN week
        JOIN gatepost.leases AS due ON due.name = page.name AND due.slot = page.slot
        WHERE page.due
            AND due.expires_at <= week.at
            AND due.token <= extract(epoch FROM week.at) * 1000000
            AND (due.reserved_for IS NULL OR due.reserved_until <= week.at)
        LIMIT sqlc.arg(remove)::integer
        FOR UPDATE OF due SKIP LOCKED
    ))
    RETURNING l.slot
), last AS (
    SELECT page.name, page.slot
    FROM page
    ORDER BY page.name DESC, page.slot DESC
    LIMIT 1
)
SELECT
    (SELECT count(*) FROM removed)::bigint AS removed,
    (SELECT count(*) FROM page)::bigint AS seen,
    coalesce((SELECT last.name FROM last), '')::text AS last_name,
    coalesce((SELECT last.slot FROM last), 0)::integer AS last_slot;

-- WaiterBacklog counts the rows that WaiterSweep would remove.
-- name: WaiterBacklog :one
SELECT
    count(*)::bigint AS due,
    coalesce(extract(epoch FROM clock_timestamp() - min(w.expires_at)) * 1000000, 0)::bigint AS age_us
FROM gatepost.waiters AS w
WHERE w.expires_at < clock_timestamp() - interval '1 minute';
