-- LeaseGet reads one name without a lock. No row: it was never acquired, or was
-- collected.
-- name: LeaseGet :one
SELECT
    l.name,
    l.token,
    coalesce(l.holder, '')::text AS holder,
    l.acquired_at,
    l.renewed_at,
    l.expires_at,
    l.transitions,
    coalesce(l.data, 'null')::text AS data,
    (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp())::boolean AS held,
    (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000000)::bigint AS left_us
FROM gatepost.leases AS l
WHERE l.name = @name
    AND l.slot = @slot;

-- LeaseList reads names in their order, from after a name on, without a lock. before_name
-- ends the names with the prefix for the index, where it is known; empty otherwise.
-- name: LeaseList :many
SELECT
    l.name,
    l.token,
    coalesce(l.holder, '')::text AS holder,
    l.acquired_at,
    l.renewed_at,
    l.expires_at,
    l.transitions,
    coalesce(l.data, 'null')::text AS data,
    (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp())::boolean AS held,
    (extract(epoch FROM l.expires_at - clock_timestamp()) * 1000000)::bigint AS left_us
FROM gatepost.leases AS l
WHERE l.slot = @slot
    AND l.name > @after::text
    AND l.name >= @prefix::text
    AND (@before_name::text = '' OR l.name < @before_name::text)
    AND starts_with(l.name, @prefix::text)
    AND (@free::boolean OR (l.nonce IS NOT NULL AND l.expires_at > clock_timestamp()))
ORDER BY l.name
LIMIT @most;
