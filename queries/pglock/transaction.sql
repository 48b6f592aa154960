-- ServerIdentity names the server, and the timeline that it writes: asked in a
-- transaction that writes, it holds until the server stops.
-- name: ServerIdentity :one
SELECT
    (SELECT c.system_identifier FROM pg_control_system() AS c)::text AS system_identifier,
    left(pg_walfile_name(pg_current_wal_lsn()), 8)::text AS timeline;

-- TransactionID is the id of the transaction that the statement runs in.
-- name: TransactionID :one
SELECT pg_current_xact_id()::text AS xid;

-- TransactionStatus tells what became of a transaction whose COMMIT was not
-- answered: committed, aborted, in progress, or empty when it is too old. It is
-- to be believed only from the server, and on the timeline, that the
-- transaction ran on; and committed only where the server has not crashed since: a
-- crash forgets transactions of which nothing was written out, and gives their ids to
-- others. It also begins the statistics anew: up_us is how long ago that was, at least.
-- name: TransactionStatus :one
SELECT
    coalesce(pg_xact_status((@xid::text)::xid8), '')::text AS status,
    pg_is_in_recovery()::boolean AS recovering,
    (SELECT c.system_identifier FROM pg_control_system() AS c)::text AS system_identifier,
    (CASE WHEN pg_is_in_recovery() THEN '' ELSE left(pg_walfile_name(pg_current_wal_lsn()), 8) END)::text AS timeline,
    (SELECT coalesce(extract(epoch FROM clock_timestamp() - w.stats_reset) * 1000000, 0) FROM pg_catalog.pg_stat_bgwriter AS w)::bigint AS up_us;
