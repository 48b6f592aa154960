package bench

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// What measureHeld holds, and for how many heartbeats it counts.
const (
	heldLeases = 1000
	heldEvery  = 500 * time.Millisecond
	heldBeats  = 8
)

// measureHeld counts the statements that keep 1,000 leases alive, and how many of the
// row versions they write are HOT: not in any index, and gone without a vacuum.
func measureHeld(ctx context.Context, e *env, r *Result) error {
	cfg, counter := counting(e.config)
	cfg.MaxConns = 2
	control, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer control.Close()
	beats := &renewals{}
	config := pglock.Config{TTL: 10 * time.Second, RenewEvery: heldEvery, Control: control, Tracer: beats}
	return e.with(ctx, e.config, config, func(_ *pgxpool.Pool, client *pglock.Client) error {
		before, err := updates(ctx, e.admin)
		if err != nil {
			return err
		}
		if err := e.acquireMany(ctx, client); err != nil { // first ones: INSERTs, and no updates
			return err
		}
		if err := beats.wait(ctx, 2); err != nil { // until those of one moment have met those of another
			return err
		}
		sent, renewed := counter.of("LeaseRenew"), beats.renewed.Load()
		if err := beats.wait(ctx, heldBeats); err != nil {
			return err
		}
		each := float64(counter.of("LeaseRenew")-sent) * heldLeases / float64(beats.renewed.Load()-renewed)
		r.Counts = []Count{{What: statements, Each: each, Bar: new(1.0)}}
		share, err := notHOT(ctx, e.admin, before)
		r.Counts = append(r.Counts, Count{What: cold, Each: share, Bar: new(5.0)})
		return err
	})
}

// acquireMany acquires leases from 8 goroutines.
func (e *env) acquireMany(ctx context.Context, client *pglock.Client) error {
	var next atomic.Int64
	_, err := crowd(8, func(ctx context.Context) error {
		_, err := client.Acquire(ctx, e.lease(fmt.Sprintf("%s/%d", e.row, next.Add(1))), nil)
		return err
	})(ctx, heldLeases/8*4)
	return err
}

// renewals counts the leases that a client's heartbeats have renewed.
type renewals struct{ renewed atomic.Int64 }

var _ pglock.RenewTracer = (*renewals)(nil)

// TraceAcquireStart does nothing.
func (*renewals) TraceAcquireStart(ctx context.Context, _ pglock.TraceAcquireStartData) context.Context {
	return ctx
}

// TraceAcquireEnd does nothing.
func (*renewals) TraceAcquireEnd(context.Context, pglock.TraceAcquireEndData) {}

// TraceRenewStart does nothing.
func (*renewals) TraceRenewStart(ctx context.Context, _ pglock.TraceRenewStartData) context.Context {
	return ctx
}

// TraceRenewEnd counts.
func (r *renewals) TraceRenewEnd(_ context.Context, data pglock.TraceRenewEndData) {
	r.renewed.Add(int64(data.Renewed))
}

// wait waits until each lease was renewed so many times more.
func (r *renewals) wait(ctx context.Context, times int64) error {
	limit := time.Duration(times+1) * heldEvery * 10
	for until, enough := time.Now().Add(limit), r.renewed.Load()+times*heldLeases; r.renewed.Load() < enough; {
		if time.Now().After(until) {
			return fmt.Errorf("%d leases were not renewed %d times within %s", heldLeases, times, limit)
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
	return nil
}

// updated is what the server's statistics say of the updates of gatepost.leases.
type updated struct{ all, hot int64 }

func updates(ctx context.Context, pool *pgxpool.Pool) (u updated, err error) {
	err = pool.QueryRow(ctx, `SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
		WHERE relid = 'gatepost.leases'::regclass`).Scan(&u.all, &u.hot)
	return u, err
}

// notHOT is the share of the updates since before that were not HOT, in %. The
// statistics come a second late, which is all the same to a share.
func notHOT(ctx context.Context, pool *pgxpool.Pool, before updated) (float64, error) {
	after, err := updates(ctx, pool)
	if err != nil {
		return 0, err
	}
	all := after.all - before.all
	if all < heldLeases {
		return 0, fmt.Errorf("the server's statistics count %d updates, less than there were: is track_counts off?", all)
	}
	return 100 * float64(all-(after.hot-before.hot)) / float64(all), nil
}
