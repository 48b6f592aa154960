package pglock_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Whatever becomes of a wake, it costs the waiter one PollInterval at most. The lease
// itself would last for two minutes more.
func TestAcquire_LostWakeCostsAPoll(t *testing.T) {
	t.Parallel()
	const poll = 1500 * time.Millisecond
	for what, lose := range map[string]func(*testing.T, *pgxpool.Pool, *faultproxy.Proxy, *pglock.Lease){
		"its request": func(t *testing.T, _ *pgxpool.Pool, p *faultproxy.Proxy, l *pglock.Lease) {
			fault := p.Next(faultproxy.Fault{Match: "WaiterWake", Lose: true})
			release(t, l)
			reached(t, fault)
		},
		"its reply": func(t *testing.T, _ *pgxpool.Pool, p *faultproxy.Proxy, l *pglock.Lease) {
			fault := p.Next(faultproxy.Fault{Match: "WaiterWake"})
			release(t, l)
			reached(t, fault)
		},
		"its backend": func(t *testing.T, pool *pgxpool.Pool, _ *faultproxy.Proxy, l *pglock.Lease) {
			operator := begin(t, pool, pgx.TxOptions{})
			if _, err := operator.Exec(t.Context(), `SELECT FROM gatepost.waiters WHERE name = $1 FOR UPDATE`, l.Name()); err != nil {
				t.Fatal(err)
			}
			release(t, l)
			var wake int32
			eventually(t, "the wake", 10*time.Second, func() bool {
				wake = value[int32](t, pool, `SELECT coalesce(min(pid), 0) FROM pg_stat_activity
					WHERE query LIKE '%name: WaiterWake%' AND $1 = ANY (pg_blocking_pids(pid))`, int32(operator.Conn().PgConn().PID()))
				return wake != 0
			})
			exec(t, pool, `SELECT pg_terminate_backend($1)`, wake)
			commit(t, operator)
		},
		"its notification": func(t *testing.T, pool *pgxpool.Pool, _ *faultproxy.Proxy, l *pglock.Lease) {
			exec(t, owner(t, pool), `UPDATE gatepost.waiters SET waiter = waiter + 1000 WHERE name = $1`, l.Name())
			release(t, l)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			url, name := pgtest.Database(t), pgtest.Name(t)
			pool, proxy := pgtest.Connect(t, url), faultproxy.New(t, url)
			through := poolWith(t, url, func(cfg *pgxpool.Config) { faultproxy.Through(cfg, proxy.Address()) })
			tries := &ended{tries: map[string]int{}}
			h := client(t, through, slowPoll)
			c := client(t, pool, pglock.Config{TTL: 2 * time.Minute, PollInterval: poll, Tracer: tries})
			holder := acquire(t, h, name, nil)
			acquire(t, h, name+"2", nil)
			granted(t, c, name+"2")
			// The LISTEN comes with a wake, which is over before the other waits.
			eventually(t, "a third try, for that wake", 10*time.Second, func() bool { return tries.of(name+"2") >= 3 })
			waiting := granted(t, c, name)
			eventually(t, "its two tries before it sleeps", 10*time.Second, func() bool { return tries.of(name) >= 2 })
			lose(t, pool, proxy, holder)
			lost := clock(t, pool)
			release(t, within(t, 20*time.Second, waiting))
			grantedBy(t, pool, name, lost, poll+slack)
		})
	}
}

// ended counts the tries to acquire that have ended, by name.
type ended struct {
	mu    sync.Mutex
	tries map[string]int
}

func (e *ended) of(name string) int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.tries[name]
}

func (*ended) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}

func (e *ended) TraceAcquireEnd(_ context.Context, data pglock.TraceAcquireEndData) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.tries[data.Name]++
}
