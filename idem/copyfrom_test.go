package idem_test

import (
	"context"
	"errors"
	"net"
	"runtime"
	"strconv"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// A source is its caller's again when CopyOnce returns, also by a context that ends while
// it is read: straight, and for the temporary table.
func TestCopyOnce_ReadsNoLongerWhenItReturns(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, key := range map[string]string{"straight": "bigint", "staging": "text"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			target := idem.Target{Table: table(t, pool, "id "+key+" PRIMARY KEY"), Columns: []string{"id"}, Key: []string{"id"}}
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			returned, ended, rows := make(chan struct{}), make(chan struct{}), 0
			source := pgx.CopyFromFunc(func() ([]any, error) {
				if rows++; rows == 1 {
					return []any{"1"}, nil
				}
				defer close(ended)
				cancel()
				select {
				case <-returned:
					t.Error("CopyOnce has returned while its source was read")
				case <-time.After(300 * time.Millisecond):
				}
				return nil, nil
			})
			_, err := idem.CopyInChunks(ctx, begin(t, pool, pgx.TxOptions{}), target, source, 1, 100)
			close(returned)
			<-ended
			wantErr(t, err, context.Canceled)
		})
	}
}

// closing is a connection that is closed while a COPY's data are written to it, as the ctx
// ends: a deadline in the past is pgconn's way to that.
type closing struct {
	net.Conn
	end context.CancelFunc
}

func (c *closing) Write(b []byte) (int, error) {
	if b[0] == 'd' {
		c.end()
		return 0, net.ErrClosed
	}
	return c.Conn.Write(b)
}

// Whichever of the two pgconn meets first, the end of the ctx or what became of the
// connection by it.
func TestCopyOnce_OfACtxThatEndsMatchesItsError(t *testing.T) {
	t.Parallel()
	for what, key := range map[string]string{"straight": "bigint", "staging": "text"} {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		pool := poolWith(t, pgtest.URL(t), maxConns(1), func(cfg *pgxpool.Config) {
			dial := cfg.ConnConfig.DialFunc
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				conn, err := dial(ctx, network, address)
				return &closing{conn, cancel}, err
			}
		})
		target := idem.Target{Table: table(t, pool, "id "+key+" PRIMARY KEY"), Columns: []string{"id"}, Key: []string{"id"}}
		_, err := idem.CopyOnce(ctx, begin(t, pool, pgx.TxOptions{}), target, pgx.CopyFromRows([][]any{{"1"}}))
		if !errors.Is(err, context.Canceled) || !errors.Is(err, net.ErrClosed) {
			t.Errorf("%s: %v, want context.Canceled, and what it came from", what, err)
		}
	}
}

// A panic of a source is its caller's to recover from, whichever goroutine reads.
func TestCopyOnce_PanicsWithItsSource(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, key := range map[string]string{"straight": "bigint", "staging": "text"} {
		target := idem.Target{Table: table(t, pool, "id "+key+" PRIMARY KEY"), Columns: []string{"id"}, Key: []string{"id"}}
		tx, rows := begin(t, pool, pgx.TxOptions{}), 0
		value := func() (value any) {
			defer func() { value = recover() }()
			_, err := idem.CopyInChunks(t.Context(), tx, target, pgx.CopyFromFunc(func() ([]any, error) {
				if rows++; rows == 50 {
					panic("as ordered")
				}
				return []any{strconv.Itoa(rows)}, nil
			}), 20, 100)
			return err
		}()
		if value != "as ordered" {
			t.Errorf("%s: got %v, want the panic", what, value)
		}
		_ = tx.Commit(t.Context()) // by somebody who didn't read that it is to be rolled back
		wantRows(t, pool, target, 0)
	}
}

// So does a test in one, which FailNow ends: whichever goroutine reads, its caller ends.
func TestCopyOnce_ExitsWithItsSource(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, key := range map[string]string{"straight": "bigint", "staging": "text"} {
		target := idem.Target{Table: table(t, pool, "id "+key+" PRIMARY KEY"), Columns: []string{"id"}, Key: []string{"id"}}
		tx, rows := begin(t, pool, pgx.TxOptions{}), 0
		ended := make(chan error, 1)
		go func() {
			defer close(ended)
			_, err := idem.CopyInChunks(t.Context(), tx, target, pgx.CopyFromFunc(func() ([]any, error) {
				if rows++; rows == 50 {
					runtime.Goexit()
				}
				return []any{strconv.Itoa(rows)}, nil
			}), 20, 100)
			ended <- err
		}()
		if err, returned := <-ended; returned {
			t.Errorf("%s: it returned %v", what, err)
		}
		_ = tx.Commit(t.Context())
		wantRows(t, pool, target, 0)
	}
}
