package idem_test

import (
	"context"
	"errors"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// short is a lease that a test can wait for and a busy machine can keep.
const short = 3 * time.Second

// renewed waits until heartbeats have renewed a lease n times.
func renewed(t *testing.T, pool *pgxpool.Pool, key idem.Key, n int) {
	t.Helper()
	until := func() time.Time {
		return value[time.Time](t, pool, `SELECT lease_until FROM gatepost.idempotency_keys WHERE operation = $1 AND scope = $2 AND key = $3`, key.Operation, key.Scope, key.Key)
	}
	for range n {
		from := until()
		waitUntil(t, "a renewal", func() bool { return until().After(from) })
	}
}

func TestHeartbeat_LivesWhileThePoolIsExhausted(t *testing.T) {
	t.Parallel()
	key, direct := newKey(t), pgtest.Pool(t)
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	a := claim(t, holder(t, pool, idem.Config{Lease: short}), key)
	only, err := pool.Acquire(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer only.Release()
	renewed(t, direct, key, 4) // more than the lease
	if a.Err() != nil {
		t.Errorf("attempt is lost: %v", a.Err())
	}
}

// Two more tries are left to a renewal that fails.
func TestHeartbeat_RenewsAtAThirdOfTheLease(t *testing.T) {
	t.Parallel()
	const lease = 6 * time.Second
	pool, key := pgtest.Pool(t), newKey(t)
	claim(t, holder(t, pool, idem.Config{Lease: lease}), key)
	until := func() time.Time {
		return value[time.Time](t, pool, `SELECT lease_until FROM gatepost.idempotency_keys WHERE scope = $1 AND key = $2`, key.Scope, key.Key)
	}
	least, last := lease, until()
	for range 3 { // the one that nothing held up counts
		renewed(t, pool, key, 1)
		next := until()
		least, last = min(least, next.Sub(last)), next
	}
	if least > lease/2 {
		t.Errorf("it is renewed each %s, of a lease of %s", least, lease)
	}
}

func TestHeartbeat_RenewsAllAttemptsInOneStatement(t *testing.T) {
	t.Parallel()
	seen := &renewals{}
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	s := holder(t, pool, idem.Config{Lease: 3 * time.Second})
	const many = 50
	for range many {
		claim(t, s, newKey(t))
	}
	waitUntil(t, "three heartbeats of one statement each", func() bool { return seen.inARow(3, many) })
}

// A statement for all of 100,000 attempts doesn't end, on a busy server, in the time that
// it has: then all are lost at once.
func TestHeartbeat_RenewsVeryManyAttemptsInParts(t *testing.T) {
	t.Parallel()
	const many, most = 25, 10
	seen := &renewals{}
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	s := holder(t, pool, idem.Config{Lease: 3 * time.Second})
	idem.RenewAtOnce(s, most)
	var keys []string
	for range many {
		key := newKey(t)
		claim(t, s, key)
		keys = append(keys, key.Key)
	}
	for range 2 { // a renewal of each, and then another
		now := value[time.Time](t, pool, "SELECT clock_timestamp()")
		waitUntil(t, "a renewal of each", func() bool {
			return value[int](t, pool, "SELECT count(*) FROM gatepost.idempotency_keys WHERE key = ANY ($1) AND lease_until > $2::timestamptz + interval '3 s'", keys, now) == many
		})
	}
	if n := seen.most(); n > most {
		t.Errorf("a statement renewed %d attempts, want %d at most", n, most)
	}
}

// renewals counts the attempts in each renewal that a pool sends.
type renewals struct {
	mu    sync.Mutex
	sizes []int
}

func (r *renewals) TraceQueryStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return ctx
}
func (*renewals) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}
func (*renewals) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}
func (*renewals) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

func (r *renewals) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	if !strings.Contains(data.SQL, "AttemptRenew") || data.Err != nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	operations, _ := data.Args[0].([]string)
	r.sizes = append(r.sizes, len(operations))
}

// inARow says whether the last n renewals were of so many attempts each.
func (r *renewals) inARow(n, size int) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for i := range n {
		if len(r.sizes) < n || r.sizes[len(r.sizes)-1-i] != size {
			return false
		}
	}
	return true
}

// most is the largest of them.
func (r *renewals) most() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Max(r.sizes)
}

func TestHeartbeat_SurvivesItsBackend(t *testing.T) {
	t.Parallel()
	key, url := newKey(t), pgtest.Database(t) // behind a pooler a session is several clients'
	direct := pgtest.Connect(t, pgtest.Direct(t, url))
	name := key.Key[max(0, len(key.Key)-60):]
	pool := poolWith(t, url, setting("application_name", name))
	a := claim(t, holder(t, pool, idem.Config{Lease: short}), key)
	for range 2 {
		renewed(t, direct, key, 1)
		exec(t, direct, `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = $1`, name)
	}
	renewed(t, direct, key, 1)
	if a.Err() != nil {
		t.Errorf("attempt is lost: %v", a.Err())
	}
}

func TestHeartbeat_LosesWhatAnotherHas(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for reason, lose := range map[error]func(idem.Key){
		idem.ErrFenced: func(k idem.Key) { change(t, pool, k, "attempt = gen_random_uuid()") },
		idem.ErrLapsed: func(k idem.Key) { lapse(t, pool, k) },
	} {
		key := newKey(t)
		a := claim(t, holder(t, pool, idem.Config{Lease: short}), key)
		lose(key)
		before := rowOf(t, pool, key)
		soon(t, "loss", a.Done())
		wantErr(t, a.Err(), reason)
		if after := rowOf(t, pool, key); after.Version != before.Version {
			t.Errorf("%v: the row was changed: %+v after %+v", reason, after, before)
		}
	}
}

// What was claimed for a request that runs long is remembered for as long as any
// other, counted from its end.
func TestHeartbeat_KeepsTheRecordAheadOfTheLease(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	a := claim(t, holder(t, pool, idem.Config{Lease: short, Retention: time.Second}), key)
	for range 6 {
		renewed(t, pool, key, 1)
		if r := rowOf(t, pool, key); r.Left < r.LeaseLeft+time.Second || r.Left > r.LeaseLeft+2*time.Second {
			t.Errorf("expires in %s, lease has %s, retention 1s", r.Left, r.LeaseLeft)
		}
	}
	if a.Err() != nil {
		t.Errorf("attempt is lost: %v", a.Err())
	}
}

// Work is told before the database gives the key away, though nothing gets through.
func TestDone_ClosesBeforeTheLeaseLapses(t *testing.T) {
	t.Parallel()
	key, direct := newKey(t), pgtest.Pool(t)
	var hang atomic.Bool
	pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(ctx context.Context, _ *pgx.ConnConfig) error {
			if hang.Load() {
				<-ctx.Done()
			}
			return ctx.Err()
		}
	})
	a := claim(t, holder(t, pool, idem.Config{Lease: 3 * time.Second}), key)
	hang.Store(true)
	rowOf(t, direct, key) // so that the next look needn't connect
	work, cancel := a.Context(t.Context())
	defer cancel()
	soon(t, "the end of the work's context", work.Done())
	if r := rowOf(t, direct, key); r.LeaseLeft <= 0 {
		t.Errorf("told %s after the lease lapsed", -r.LeaseLeft)
	}
	wantErr(t, context.Cause(work), idem.ErrLapsed)
	wantErr(t, a.Err(), idem.ErrLapsed)
}

func TestContext_EndsWithTheCallersToo(t *testing.T) {
	t.Parallel()
	a := claim(t, holder(t, pgtest.Pool(t), idem.Config{}), newKey(t))
	outer, stop := context.WithCancel(t.Context())
	work, cancel := a.Context(outer)
	defer cancel()
	if work.Err() != nil {
		t.Fatal(work.Err())
	}
	stop()
	soon(t, "the end", work.Done())
	other, cancel := a.Context(t.Context())
	defer cancel()
	release(t, a)
	soon(t, "the end", other.Done())
	wantErr(t, context.Cause(other), idem.ErrEnded)
}

// A store that holds nothing has no goroutine, which goleak watches, and Close is
// told to those that hold.
func TestClose_LosesWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool, key := pgtest.Pool(t), newKey(t)
	s := holder(t, pool, idem.Config{})
	a, b := claim(t, s, key), claim(t, s, newKey(t))
	entered, closed := make(chan struct{}), make(chan struct{})
	go func() {
		<-entered
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
		close(closed)
	}()
	err := b.Finish(t.Context(), answer, func(pgx.Tx) error {
		close(entered)
		soon(t, "the end of the other", a.Done())
		return errors.Join(b.Err())
	})
	if err != nil {
		t.Errorf("Finish while the store closes: %v", err)
	}
	soon(t, "Close", closed)
	wantErr(t, a.Err(), idem.ErrClosed)
	if r := rowOf(t, pool, key); r.State != 1 {
		t.Errorf("row %+v: what may be running was given away", r)
	}
	release(t, a)
	if r := rowOf(t, pool, key); r.State != 4 {
		t.Errorf("row %+v", r)
	}
}

// Nor does the store wait for a connection of its own that nobody answers.
func TestClose_IsNotHeldUpByAConnectThatHangs(t *testing.T) {
	t.Parallel()
	for what, change := range map[string]func(*pgxpool.Config, func(context.Context) error){
		"dial": func(cfg *pgxpool.Config, hang func(context.Context) error) {
			dial := cfg.ConnConfig.DialFunc
			cfg.ConnConfig.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
				if err := hang(ctx); err != nil {
					return nil, err
				}
				return dial(ctx, network, address)
			}
		},
		"hook": func(cfg *pgxpool.Config, hang func(context.Context) error) {
			cfg.AfterConnect = func(ctx context.Context, _ *pgx.Conn) error { return hang(ctx) }
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			var down atomic.Bool
			pool := poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
				change(cfg, func(ctx context.Context) error {
					if !down.Load() {
						return nil
					}
					select {
					case <-ctx.Done():
					case <-time.After(time.Minute): // for the fault to end, too
					}
					return errors.New("hung")
				})
			})
			s := holder(t, pool, idem.Config{Lease: short})
			a := claim(t, s, newKey(t))
			down.Store(true)
			soon(t, "the loss", a.Done())
			ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
			defer cancel()
			if err := s.Close(ctx); err != nil {
				t.Errorf("Close: %v", err)
			}
		})
	}
}

func TestClose_WaitsNoLongerThanItsContext(t *testing.T) {
	t.Parallel()
	s := holder(t, pgtest.Pool(t), idem.Config{})
	a := claim(t, s, newKey(t))
	err := a.Finish(t.Context(), answer, func(pgx.Tx) error {
		ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer cancel()
		return s.Close(ctx)
	})
	wantErr(t, err, context.DeadlineExceeded)
	wantErr(t, a.Err(), idem.ErrClosed)
}
