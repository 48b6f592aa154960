-- KeyBody reads a stored body, which KeyShow leaves out. No row: no such key.
-- name: KeyBody :one
SELECT k.body
FROM gatepost.idempotency_keys AS k
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key;

-- KeyOperations lists the operations that have rows, in their order and from behind
-- one on, without a lock. One search of the primary key for each, however many keys
-- it has.
-- name: KeyOperations :many
WITH RECURSIVE found AS (
    (
        SELECT k.operation
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation > @after::text
        ORDER BY k.operation
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT k.operation
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation > f.operation
        ORDER BY k.operation
        LIMIT 1
    )
    FROM found AS f
    WHERE f.operation IS NOT NULL
)
SELECT found.operation::text AS operation
FROM found
WHERE found.operation IS NOT NULL
LIMIT sqlc.arg(most)::integer;

-- KeyPage reads rows of an operation and a scope, or of any, in a state, or in any, in
-- the order of the primary key, from behind one on and at most so many, without a lock.
-- Where most rows are wanted, a page costs the same in a table of any size; for a rare
-- state, which no index has, the planner reads the table once, and not by the index
-- row after row. So the state comes as the column's, 0 for any, which there are
-- statistics of, and what tells 'running' from 'in doubt', a running claim that has
-- lapsed, beside it. A row past its expiry counts as absent for callers: left_us is
-- negative then. left_us and lease_left_us are by the database's clock.
-- name: KeyPage :many
WITH page AS MATERIALIZED (
    SELECT
        k.operation,
        k.scope,
        k.key,
        k.state,
        k.attempt_no,
        k.status,
        k.body_len,
        k.created_at,
        k.done_at,
        k.expires_at,
        k.lease_until
    FROM gatepost.idempotency_keys AS k
    WHERE (@state::smallint = 0 OR k.state = @state::smallint)
        AND (@operation::text = '' OR k.operation = @operation::text)
        AND (@scope::text = '' OR k.scope = @scope::text)
        AND CASE @claim::text
            WHEN 'running' THEN k.lease_until > (SELECT clock_timestamp())
            WHEN 'in doubt' THEN (k.lease_until > (SELECT clock_timestamp())) IS NOT TRUE
            ELSE true
        END
        AND (k.operation, k.scope, k.key) > (@after_operation::text, @after_scope::text, @after_key::text)
    ORDER BY k.operation, k.scope, k.key
    LIMIT sqlc.arg(most)::integer
)
SELECT
    p.operation::text AS operation,
    p.scope::text AS scope,
    p.key::text AS key,
    (CASE p.state
        WHEN 1 THEN CASE WHEN p.lease_until > n.at THEN 'running' ELSE 'in doubt' END
        WHEN 2 THEN 'done'
        WHEN 3 THEN 'tombstone'
        ELSE 'released'
    END)::text AS state,
    p.attempt_no,
    p.status,
    coalesce(p.body_len, 0)::bigint AS body_len,
    p.created_at,
    p.done_at,
    p.expires_at,
    p.lease_until,
    (extract(epoch FROM n.at - p.created_at) * 1000000)::bigint AS age_us,
    (extract(epoch FROM p.expires_at - n.at) * 1000000)::bigint AS left_us,
    coalesce(extract(epoch FROM p.lease_until - n.at) * 1000000, 0)::bigint AS lease_left_us
FROM page AS p
CROSS JOIN (SELECT clock_timestamp() AS at) AS n
ORDER BY p.operation, p.scope, p.key;

-- KeyScopes lists the scopes of an operation, as KeyOperations does the operations.
-- name: KeyScopes :many
WITH RECURSIVE found AS (
    (
        SELECT k.scope
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation = @operation
            AND k.scope > @after::text
        ORDER BY k.scope
        LIMIT 1
    )
    UNION ALL
    SELECT (
        SELECT k.scope
        FROM gatepost.idempotency_keys AS k
        WHERE k.operation = @operation
            AND k.scope > f.scope
        ORDER BY k.scope
        LIMIT 1
    )
    FROM found AS f
    WHERE f.scope IS NOT NULL
)
SELECT found.scope::text AS scope
FROM found
WHERE found.scope IS NOT NULL
LIMIT sqlc.arg(most)::integer;

-- KeyShow reads all that is stored of a key but its body, without a lock; the states
-- are those of KeyPage. No row: no such key, or one of a transaction that is still
-- open.
-- name: KeyShow :one
SELECT
    (CASE k.state
        WHEN 1 THEN CASE WHEN k.lease_until > n.at THEN 'running' ELSE 'in doubt' END
        WHEN 2 THEN 'done'
        WHEN 3 THEN 'tombstone'
        ELSE 'released'
    END)::text AS state,
    k.attempt::text AS attempt,
    k.attempt_no,
    k.fingerprint,
    k.fingerprint_version,
    k.status,
    coalesce(k.headers::text, '')::text AS headers,
    coalesce(k.codec, '')::text AS codec,
    coalesce(k.body_len, 0)::bigint AS body_len,
    k.created_at,
    k.done_at,
    k.expires_at,
    k.lease_until,
    (extract(epoch FROM n.at - k.created_at) * 1000000)::bigint AS age_us,
    (extract(epoch FROM k.expires_at - n.at) * 1000000)::bigint AS left_us,
    coalesce(extract(epoch FROM k.lease_until - n.at) * 1000000, 0)::bigint AS lease_left_us
FROM gatepost.idempotency_keys AS k
CROSS JOIN (SELECT clock_timestamp() AS at) AS n
WHERE k.operation = @operation
    AND k.scope = @scope
    AND k.key = @key;

-- KeySteps lists the finished steps of a key, in the order in which they ended, and
-- how large each output is.
-- name: KeySteps :many
SELECT
    s.step,
    octet_length(s.output)::bigint AS size,
    s.done_at
FROM gatepost.idempotency_steps AS s
WHERE s.operation = @operation
    AND s.scope = @scope
    AND s.key = @key
ORDER BY s.done_at, s.step;
