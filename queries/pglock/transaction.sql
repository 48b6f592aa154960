-- TransactionID is the id of the transaction that the statement runs in.
-- name: TransactionID :one
SELECT pg_current_xact_id()::text AS xid;

-- TransactionSettings prepares a short transaction that grants or extends: the
-- first INSERT of a name waits for another first INSERT only that long, and a
-- grant that was answered must survive a crash, so an asynchronous commit is
-- raised to a durable one and a stronger setting is left.
-- name: TransactionSettings :exec
SELECT
    set_config('lock_timeout', '100', true),
    CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
        THEN set_config('synchronous_commit', 'on', true) END;

-- TransactionStatus tells what became of a transaction whose COMMIT was not
-- answered: committed, aborted, in progress, or empty when it is too old. It is
-- to be believed only from the server, and on the timeline, that the
-- transaction ran on.
-- name: TransactionStatus :one
SELECT
    coalesce(pg_xact_status((@xid::text)::xid8), '')::text AS status,
    pg_is_in_recovery()::boolean AS recovering,
    (SELECT c.system_identifier FROM pg_control_system() AS c)::text AS system_identifier,
    (CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END)::text AS timeline;
