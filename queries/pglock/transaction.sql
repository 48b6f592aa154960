-- TransactionSettings prepares a short transaction that grants or extends: the
-- first INSERT of a name waits for another first INSERT only that long, and a
-- grant that was answered must survive a crash, so an asynchronous commit is
-- raised to a durable one and a stronger setting is left.
-- name: TransactionSettings :exec
SELECT
    set_config('lock_timeout', '100', true),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
        THEN set_config('synchronous_commit', 'on', true) END;
