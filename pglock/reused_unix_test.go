//go:build unix

package pglock_test

import (
	"errors"
	"strconv"
	"testing"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Rule F7. A crash forgets transactions of which nothing had been written out, and
// their ids are given to others: what committed under the id may be another's work.
func TestInTx_CommitLostInACrashIsNotTakenForAnothers(t *testing.T) {
	t.Parallel()
	s, direct := server(t, map[string]string{"wal_writer_delay": "10s", "autovacuum": "off"})
	pool, proxy := faultproxy.Pool(t, s.URL(""), 4)
	l, ours, others := acquire(t, asleep(t, pool), pgtest.Name(t), nil), table(t, direct), table(t, direct)
	tx, err := l.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := insert(t.Context(), tx, ours, "lost"); err != nil {
		t.Fatal(err)
	}
	xid := currentXID(t, tx)
	held := proxy.Next(faultproxy.Fault{Match: "commit", Lose: true, Hold: true})
	result := make(chan error, 1)
	go func() { result <- tx.Commit(t.Context()) }()
	reached(t, held)

	restart(t, s, direct, pgtemp.Immediate)
	if again := commitUntil(t, direct, others, xid); again != xid {
		t.Skipf("transaction id %d was not given out again: the next one was %d", xid, again)
	}
	proxy.SetStall(false)
	err = <-result
	if n := rows(t, direct, ours); n != 0 || !errors.Is(err, pglock.ErrCommitUnknown) {
		t.Errorf("%d rows, Commit = %v; want none and ErrCommitUnknown", n, err)
	}
}

func currentXID(t *testing.T, tx pgx.Tx) (xid int64) {
	t.Helper()
	var text string
	if err := tx.QueryRow(t.Context(), `SELECT pg_current_xact_id()::text`).Scan(&text); err != nil {
		t.Fatal(err)
	}
	xid, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return xid
}

// commitUntil commits transactions up to that id, and returns the last one's.
func commitUntil(t *testing.T, pool *pgxpool.Pool, table string, xid int64) (last int64) {
	t.Helper()
	for last < xid {
		tx := begin(t, pool, pgx.TxOptions{})
		if err := insert(t.Context(), tx, table, "another's"); err != nil {
			t.Fatal(err)
		}
		last = currentXID(t, tx)
		commit(t, tx)
	}
	return last
}
