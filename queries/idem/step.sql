-- StepBegin is the first statement of a step's transaction: it finds out that the
-- key is still this attempt's, keeps it so until the transaction ends (held), and
-- reads the step's output if an earlier call stored one. It always returns one row.
-- FOR KEY SHARE holds off a takeover, which locks FOR UPDATE, as well as the garbage
-- collection, and lets heartbeats pass. An attempt that has lapsed is told so and
-- locks nothing: its steps, one after another, could keep a takeover out for ever. The
-- lease is looked at again by a clock that is read after the lock. limit_ms and the
-- commit as in AttemptLock.
-- name: StepBegin :one
WITH limits AS MATERIALIZED (
    SELECT
        CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
            THEN set_config('synchronous_commit', 'on', true) END AS synchronous_commit,
        CASE WHEN current_setting('idle_in_transaction_session_timeout')::interval NOT BETWEEN interval '1 ms' AND sqlc.arg(limit_ms)::bigint * interval '1 ms'
            THEN set_config('idle_in_transaction_session_timeout', sqlc.arg(limit_ms)::bigint::text, true) END AS idle
), seen AS MATERIALIZED (
    SELECT coalesce(k.lease_until > clock_timestamp(), false) AS live
    FROM gatepost.idempotency_keys AS k
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
        AND k.attempt = (@attempt::text)::uuid
        AND k.state = 1
), locked AS MATERIALIZED (
    SELECT k.lease_until
    FROM gatepost.idempotency_keys AS k
    WHERE k.operation = @operation
        AND k.scope = @scope
        AND k.key = @key
        AND k.attempt = (@attempt::text)::uuid
        AND k.state = 1
        AND EXISTS (SELECT FROM seen WHERE seen.live)
    FOR KEY SHARE
)
SELECT
    (locked.lease_until IS NOT NULL)::boolean AS held,
    coalesce(NOT seen.live OR locked.lease_until <= clock_timestamp(), false)::boolean AS lapsed,
    (s.step IS NOT NULL)::boolean AS stored,
    coalesce(s.output, '')::bytea AS output
FROM limits
LEFT JOIN seen ON true
LEFT JOIN locked ON true
LEFT JOIN gatepost.idempotency_steps AS s
    ON s.operation = @operation
    AND s.scope = @scope
    AND s.key = @key
    AND s.step = @step::text;

-- StepOutput reads the output of a step. No row: it has not been stored.
-- name: StepOutput :one
SELECT s.output
FROM gatepost.idempotency_steps AS s
WHERE s.operation = @operation
    AND s.scope = @scope
    AND s.key = @key
    AND s.step = @step::text;

-- StepStore stores the output of a step, in the transaction of its effects. A step of
-- that name that is there already is a unique violation of idempotency_steps_pkey,
-- which ends the transaction: the effects must not stay.
-- name: StepStore :one
INSERT INTO gatepost.idempotency_steps AS s (operation, scope, key, step, output, done_at)
VALUES (@operation, @scope, @key, @step::text, @output::bytea, clock_timestamp())
RETURNING s.done_at;
