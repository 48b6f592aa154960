package bench

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Majors of PostgreSQL from which on a backend can be told to report at once what it
// counted, and the WAL's fsyncs are in pg_stat_io.
const (
	forcedReports = 15
	walInStatIO   = 18
)

// lateReport is how long a backend before forcedReports may keep what it counted, and
// as long again may pass until a reader gets it.
const lateReport = 600 * time.Millisecond

// position is how far a server's log, its transactions and its statistics are. The
// fsyncs are those of the WAL, 0 with a wal_sync_method that opens it synchronously; the
// buffers are this database's.
type position struct{ wal, xid, fsyncs, buffers int64 }

// position reads the position, after the connections have ended and reported what they
// did. It takes no transaction id itself.
func (e *env) position(ctx context.Context, t *tally) (p position, err error) {
	if err := t.settle(ctx); err != nil {
		return p, err
	}
	if err := e.report(ctx, t.pools); err != nil {
		return p, err
	}
	fsyncs := "(SELECT wal_sync FROM pg_stat_wal)"
	if e.version >= walInStatIO {
		fsyncs = "(SELECT sum(fsyncs) FROM pg_stat_io WHERE object = 'wal' AND context = 'normal')"
	}
	err = e.admin.QueryRow(ctx, `SELECT (pg_current_wal_insert_lsn() - '0/0'::pg_lsn)::bigint,
		pg_snapshot_xmax(pg_current_snapshot())::text::bigint, `+fsyncs+`::bigint,
		pg_stat_get_db_blocks_fetched((SELECT oid FROM pg_database WHERE datname = current_database()))`,
	).Scan(&p.wal, &p.xid, &p.fsyncs, &p.buffers)
	return p, err
}

// report has the backends of idle connections tell the server's statistics what they
// counted.
func (e *env) report(ctx context.Context, pools []*pgxpool.Pool) error {
	if e.version >= forcedReports {
		return onAllIdle(ctx, pools, "SELECT pg_stat_force_next_flush()")
	}
	if err := pause(ctx, lateReport); err != nil {
		return err
	}
	if err := onAllIdle(ctx, pools, "SELECT 1"); err != nil { // they report in passing
		return err
	}
	return pause(ctx, lateReport)
}

// onAllIdle runs a statement on each idle connection.
func onAllIdle(ctx context.Context, pools []*pgxpool.Pool, sql string) (err error) {
	for _, pool := range pools {
		for _, conn := range pool.AcquireAllIdle(ctx) {
			if err == nil {
				_, err = conn.Exec(ctx, sql)
			}
			conn.Release()
		}
	}
	return err
}
