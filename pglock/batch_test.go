package pglock_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batches writes down what a pool sends: each statement of a batch but BEGIN and
// COMMIT.
type batches struct {
	mu   sync.Mutex
	sent []batch
}

type batch struct {
	renewal  bool
	leases   int64
	at       time.Time
	duration time.Duration
}

type batchStart struct{}

func (b *batches) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*batches) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*batches) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return context.WithValue(ctx, batchStart{}, time.Now())
}
func (*batches) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (b *batches) TraceBatchQuery(ctx context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if !strings.Contains(data.SQL, "name:") {
		return
	}
	at, _ := ctx.Value(batchStart{}).(time.Time)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.sent = append(b.sent, batch{
		renewal: strings.Contains(data.SQL, "name: LeaseRenew") && data.Err == nil,
		leases:  data.CommandTag.RowsAffected(), at: at, duration: time.Since(at),
	})
}

// inARow says whether the last n statements were renewals of so many leases, each within
// half an interval, and none closer to another than that.
func (b *batches) inARow(n int, leases int64, every time.Duration) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(b.sent) < n {
		return false
	}
	last := b.sent[len(b.sent)-n:]
	for i, s := range last {
		if !s.renewal || s.leases != leases || s.duration > every/2 || i > 0 && s.at.Sub(last[i-1].at) < every/2 {
			return false
		}
	}
	return true
}

func TestHeartbeat_RenewsAThousandLeasesInOneStatement(t *testing.T) {
	t.Parallel()
	const many, every = 1000, time.Second
	seen, pool, name := &batches{}, poolWith(t, pgtest.URL(t), maxConns(8)), pgtest.Name(t)
	control := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	c := client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: every, Control: control})
	var acquiring sync.WaitGroup
	leases := make([]*pglock.Lease, many)
	for part := range 8 {
		acquiring.Go(func() {
			for i := part; i < many; i += 8 {
				l, err := c.TryAcquire(t.Context(), fmt.Sprint(name, i), nil)
				if err != nil {
					t.Errorf("TryAcquire: %v", err)
					return
				}
				leases[i] = l
			}
		})
	}
	acquiring.Wait()
	if t.Failed() {
		return
	}
	eventually(t, "three heartbeats of one statement each", 20*time.Second, func() bool { return seen.inARow(3, many, every) })
	// As the rows tell it. A beat that found no time is made up for by another.
	eventually(t, "one transaction that has written all of them", 20*time.Second, func() bool {
		return value[int](t, pool, `SELECT count(DISTINCT xmin::text) FROM gatepost.leases WHERE starts_with(name, $1)`, name) == 1
	})
	for _, l := range leases {
		if l.Err() != nil {
			t.Fatalf("%s is lost: %v", l.Name(), l.Err())
		}
	}
}

// A statement for all of 100,000 leases locks them all for seconds, and on a busy server
// doesn't end in the time that it has: then all are lost at once.
func TestHeartbeat_RenewsVeryManyLeasesInParts(t *testing.T) {
	t.Parallel()
	const many, most = 25, 10
	seen, pool, name := &batches{}, pgtest.Pool(t), pgtest.Name(t)
	control := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	c := client(t, pool, pglock.Config{TTL: time.Minute, RenewEvery: 500 * time.Millisecond, Control: control})
	pglock.RenewAtOnce(c, most)
	for i := range many {
		if _, err := c.TryAcquire(t.Context(), fmt.Sprint(name, i), nil); err != nil {
			t.Fatal(err)
		}
	}
	since := value[time.Time](t, pool, "SELECT clock_timestamp()")
	for range 2 { // a renewal of each, and then another
		eventually(t, "a renewal of each", 20*time.Second, func() bool {
			return value[int](t, pool, "SELECT count(*) FROM gatepost.leases WHERE starts_with(name, $1) AND renewed_at > $2", name, since) == many
		})
		since = value[time.Time](t, pool, "SELECT clock_timestamp()")
	}
	seen.mu.Lock()
	defer seen.mu.Unlock()
	for _, s := range seen.sent {
		if s.renewal && s.leases > most {
			t.Errorf("a statement renewed %d leases, want %d at most", s.leases, most)
		}
	}
}
