package pglock_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var fast = pglock.Config{TTL: 5 * time.Second, PollInterval: 50 * time.Millisecond}

// candidate runs an elector in the background until the test ends.
type candidate struct {
	elector *pglock.Elector
	holder  string
	leading chan context.Context // the context of each term
	leave   chan error           // makes fn return that
	over    chan error           // what Run returned
	stop    context.CancelFunc
}

func campaign(t *testing.T, pool *pgxpool.Pool, name, holder string) *candidate {
	t.Helper()
	cfg := fast
	cfg.Holder = holder
	c := &candidate{
		elector: client(t, pool, cfg).Elector(name, nil), holder: holder,
		leading: make(chan context.Context, 10), leave: make(chan error), over: make(chan error, 1),
	}
	ctx, stop := context.WithCancel(t.Context())
	c.stop = stop
	t.Cleanup(stop)
	go func() {
		c.over <- c.elector.Run(ctx, func(ctx context.Context, _ *pglock.Lease) error {
			c.leading <- ctx
			select {
			case err := <-c.leave:
				return err
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		})
	}()
	return c
}

// leads waits for the candidate's next term.
func (c *candidate) leads(t *testing.T) context.Context {
	t.Helper()
	select {
	case ctx := <-c.leading:
		return ctx
	case err := <-c.over:
		t.Fatalf("%s ended: %v", c.holder, err)
	case <-time.After(15 * time.Second):
		t.Fatalf("%s doesn't lead", c.holder)
	}
	return nil
}

func (c *candidate) ends(t *testing.T) error {
	t.Helper()
	select {
	case err := <-c.over:
		return err
	case <-time.After(15 * time.Second):
		t.Fatalf("%s goes on", c.holder)
		return nil
	}
}

func TestElector_ResignsWhenFnReturns(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	a := campaign(t, pool, name, "a")
	a.leads(t)
	b := campaign(t, pool, name, "b")
	info, err := b.elector.Leader(t.Context())
	if err != nil || info.Holder != "a" || info.Transitions != 1 || info.Token == 0 || info.AcquiredAt.IsZero() {
		t.Errorf("leader is %+v, %v", info, err)
	}
	enough := errors.New("enough")
	a.leave <- enough
	if err := a.ends(t); !errors.Is(err, enough) {
		t.Errorf("Run returned %v, want fn's value", err)
	}
	wantErr(t, a.elector.Resign(), pglock.ErrNoLeader)
	wantErr(t, a.elector.HandOver("b"), pglock.ErrNoLeader)
	b.leads(t)
	b.leave <- nil
	if err := b.ends(t); err != nil {
		t.Errorf("Run returned %v, want nil", err)
	}
	if _, err := a.elector.Leader(t.Context()); !errors.Is(err, pglock.ErrNoLeader) {
		t.Errorf("error is %v, want ErrNoLeader", err)
	}
}

func TestElector_CampaignsAgainAfterALoss(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	a := campaign(t, pool, name, "a")
	term := a.leads(t)
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name) // as an operator would
	<-term.Done()
	if cause := context.Cause(term); !errors.Is(cause, pglock.ErrLost) {
		t.Errorf("cause is %v, want ErrLost", cause)
	}
	a.leads(t)
	a.stop()
	if err := a.ends(t); !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v, want the context's error", err)
	}
}

// The next term of the same process begins only after the last one's work.
func TestElector_WaitsForFnBeforeItCampaigns(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	elector := client(t, pool, fast).Elector(name, nil)
	var together atomic.Int32
	terms := make(chan struct{}, 2)
	finish := make(chan struct{})
	over := make(chan error, 1)
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		over <- elector.Run(ctx, func(ctx context.Context, _ *pglock.Lease) error {
			if together.Add(1) > 1 {
				t.Error("two terms at once")
			}
			defer together.Add(-1)
			terms <- struct{}{}
			<-ctx.Done()
			terms <- struct{}{}
			<-finish // long after it
			return nil
		})
	}()
	<-terms
	exec(t, pool, `UPDATE gatepost.leases SET nonce = NULL, holder = NULL WHERE name = $1`, name)
	<-terms // it was told of the loss
	if _, err := elector.Leader(t.Context()); !errors.Is(err, pglock.ErrNoLeader) {
		t.Errorf("it leads again (%v) before its work has ended", err)
	}
	finish <- struct{}{}
	<-terms
	cancel()
	<-terms
	finish <- struct{}{}
	if err := <-over; err != nil && !errors.Is(err, context.Canceled) {
		t.Errorf("Run returned %v", err)
	}
}

func TestElector_HandsOverToTheNamedCandidate(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	a := campaign(t, pool, name, "a")
	a.leads(t)
	others := []*candidate{campaign(t, pool, name, "b"), campaign(t, pool, name, "c"), campaign(t, pool, name, "d")}
	registered(t, pool, name, len(others))
	if err := a.elector.HandOver("d"); err != nil {
		t.Fatal(err)
	}
	if err := a.ends(t); !errors.Is(err, pglock.ErrResigned) {
		t.Errorf("Run returned %v, want what fn made of ErrResigned", err)
	}
	others[2].leads(t)
	if info, err := a.elector.Leader(t.Context()); err != nil || info.Holder != "d" {
		t.Errorf("leader is %+v, %v; want d", info, err)
	}
	if err := others[0].elector.Resign(); !errors.Is(err, pglock.ErrNoLeader) {
		t.Errorf("Resign of who doesn't lead: %v", err)
	}
	if err := a.elector.HandOver(""); !errors.Is(err, pglock.ErrInvalidConfig) {
		t.Errorf("HandOver to nobody: %v", err)
	}
}

func TestElector_ReservationOfAnAbsentCandidateLapses(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	a := campaign(t, pool, name, "a")
	a.leads(t)
	if err := a.elector.HandOver("nobody"); err != nil {
		t.Fatal(err)
	}
	_ = a.ends(t)
	c := client(t, pool, pglock.Config{})
	_, err := c.TryAcquire(t.Context(), name, nil)
	held, ok := errors.AsType[*pglock.HeldError](err)
	if !ok || held.Holder != "nobody" || held.Fenced {
		t.Fatalf("error is %v, want it reserved", err)
	}
	exec(t, pool, `UPDATE gatepost.leases SET reserved_until = clock_timestamp() WHERE name = $1`, name)
	acquire(t, c, name, nil)
}

func TestElector_ObserveSendsTheStateAndItsChanges(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	watcher := client(t, pool, fast).Elector(name, nil)
	ctx, cancel := context.WithCancel(t.Context())
	states := watcher.Observe(ctx)
	if s := <-states; s.Held || s.Name != name {
		t.Errorf("first state is %+v, want no leader", s)
	}
	a := campaign(t, pool, name, "a")
	a.leads(t)
	if s := <-states; !s.Held || s.Holder != "a" {
		t.Errorf("state is %+v, want a", s)
	}
	a.leave <- nil
	_ = a.ends(t)
	if s := <-states; s.Held {
		t.Errorf("state is %+v, want no leader", s)
	}
	cancel()
	for range states { // until it is closed
	}
}

// Between two looks a leader can lose the lease and have it again: that is another term.
func TestElector_ObserveSendsANewTermOfTheSameLeader(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, fast)
	l := acquire(t, c, name, nil)
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	states := c.Elector(name, nil).Observe(ctx)
	if s := <-states; !s.Held || s.Token != l.Token() || s.Holder != l.Holder() {
		t.Fatalf("state is %+v, want the lease's", s)
	}
	exec(t, pool, `UPDATE gatepost.leases SET token = token + 1, transitions = transitions + 1 WHERE name = $1`, name)
	if s := <-states; !s.Held || s.Token != l.Token()+1 || s.Holder != l.Holder() || s.Transitions != 2 {
		t.Errorf("state is %+v, want the next term's", s)
	}
}

func TestElector_GivesUpOnlyWhatCantBecomeRight(t *testing.T) {
	t.Parallel()
	never := func(context.Context, *pglock.Lease) error { t.Error("it led"); return nil }
	c := client(t, pgtest.Pool(t), fast)
	wantErr(t, c.Elector("", nil).Run(t.Context(), never), pglock.ErrInvalidName)
	empty := client(t, pgtest.Connect(t, pgtest.EmptyDatabase(t)), fast)
	wantErr(t, empty.Elector("x", nil).Run(t.Context(), never), pglock.ErrNotMigrated)
	nowhere, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nowhere.Close)
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	err = client(t, nowhere, fast).Elector("x", &pglock.ElectorOptions{Backoff: 100 * time.Millisecond}).Run(ctx, never)
	wantErr(t, err, context.DeadlineExceeded)
	if _, ok := errors.AsType[*pgconn.ConnectError](err); !ok {
		t.Errorf("Run = %v, which doesn't say why nobody led", err)
	}
}
