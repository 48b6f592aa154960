package pglock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// ErrNoLeader says that nobody leads now.
var ErrNoLeader = errors.New("pglock: there is no leader")

// ErrResigned is the cause with which a leader's context ends when Resign or
// HandOver was called.
var ErrResigned = errors.New("pglock: leader resigned")

// reserveFor is how long a name waits for the candidate that it was handed to.
const reserveFor = 5 * time.Second

// ElectorOptions are the options of an election. Nil means the client's.
type ElectorOptions struct {
	// Acquire is how the leader's lease is acquired. Its Wait is not used.
	Acquire AcquireOptions
	// Poll is how often Observe looks. Defaults to the client's PollInterval.
	Poll time.Duration
	// Backoff is the longest pause after a campaign that failed for want of a
	// database. Defaults to 5 s.
	Backoff time.Duration
}

// An Elector lets one of several processes lead at a time, under one name. It is
// safe for concurrent use, but for Run, of which there is one at a time.
//
// A leader is the holder of a lease and no more: it can be stopped and outlive
// its term. What must not be done twice is to be written under the lease's fence.
type Elector struct {
	client *Client
	name   string
	opts   ElectorOptions

	mu   sync.Mutex
	term *term
}

// term is the time that this process leads.
type term struct {
	cancel    context.CancelCauseFunc
	resigned  bool
	candidate string
}

// Elector makes an elector. It sends nothing; what is wrong with the name or the
// options, Run says.
func (c *Client) Elector(name string, opts *ElectorOptions) *Elector {
	e := &Elector{client: c, name: name}
	if opts != nil {
		e.opts = *opts
	}
	e.opts.Poll = orDefault(e.opts.Poll, c.cfg.PollInterval)
	e.opts.Backoff = orDefault(e.opts.Backoff, 5*time.Second)
	e.opts.Acquire.Wait = 0
	return e
}

// Run campaigns until it leads, and calls fn while it does. When fn returns, it
// resigns and returns fn's value. When the lease is lost, fn's context is
// cancelled with the reason, Run waits for fn, and campaigns again: stopping fn
// comes before another can lead, as far as a clock can promise that. It also
// campaigns again, after a pause, when the database can't be reached, also for a wrong
// password: Config.Logger tells of it. When ctx ends it returns the context's error,
// after fn returned, with fn's in it, or with what the last campaign failed for.
//
// Errors besides fn's and ctx's: ErrInvalidName, ErrInvalidConfig, ErrNotMigrated,
// ErrClosed, and the reason of a loss that only the release found out.
func (e *Elector) Run(ctx context.Context, fn func(context.Context, *Lease) error) error {
	if e.opts.Poll < 0 || e.opts.Backoff < 0 {
		return fmt.Errorf("%w: ElectorOptions has a negative Poll or Backoff", ErrInvalidConfig)
	}
	pause := e.opts.Backoff / 32
	var trouble error // of the campaign before, if it failed
	for {
		how, err := e.lead(ctx, fn)
		switch {
		case how == done:
			return err
		case ctx.Err() != nil && errors.Is(err, ErrHeld) && how == neverLed:
			return ctx.Err()
		case ctx.Err() != nil && how == neverLed:
			return cutShort(ctx, trouble)
		case ctx.Err() != nil:
			return cutShort(ctx, err)
		case how == lost:
			pause, trouble = e.opts.Backoff/32, nil
			continue
		case final(err):
			return err
		}
		trouble = err
		e.client.cfg.Logger.WarnContext(ctx, "campaign is retried", "lease", e.name, "err", err)
		if err := e.client.sleep(ctx, jitter(pause)); err != nil {
			return err
		}
		pause = min(2*pause, e.opts.Backoff)
	}
}

// final says whether campaigning again can't help.
func final(err error) bool {
	for _, f := range []error{ErrInvalidName, ErrInvalidConfig, ErrNotMigrated, ErrClosed} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// cutShort is the error of a ctx that ended, with what fn said to that, or with why
// nobody could be asked who leads.
func cutShort(ctx context.Context, err error) error {
	if err == nil || errors.Is(err, ctx.Err()) {
		return ctx.Err()
	}
	return fmt.Errorf("%w: %w", ctx.Err(), err)
}

// ending says how a campaign or its term ended.
type ending int

const (
	neverLed ending = iota
	done            // fn returned, by itself or because it was to resign
	stopped         // ctx ended before fn returned
	lost            // the lease was lost before fn returned
)

// lead is one campaign and one term.
func (e *Elector) lead(ctx context.Context, fn func(context.Context, *Lease) error) (how ending, err error) {
	err = e.client.Do(ctx, e.name, &e.opts.Acquire, func(work context.Context, l *Lease) error {
		work, cancel := context.WithCancelCause(work)
		defer cancel(nil)
		e.begin(&term{cancel: cancel})
		defer func() { how = e.end(ctx, l) }()
		return fn(work, l)
	})
	return how, err
}

func (e *Elector) begin(t *term) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.term = t
}

// end is after fn returned and before Do releases, which a hand-over makes a
// release for its candidate. A loss is no reason to go on for who has resigned.
func (e *Elector) end(ctx context.Context, l *Lease) ending {
	e.mu.Lock()
	t := e.term
	e.term = nil
	e.mu.Unlock()
	if t.candidate != "" {
		l.reserve(t.candidate)
	}
	switch reason := l.Err(); {
	case ctx.Err() != nil:
		return stopped
	case reason != nil && !errors.Is(reason, ErrReleased) && !t.resigned:
		return lost
	default:
		return done
	}
}

// Resign ends this process's term: fn's context is cancelled with ErrResigned,
// and when fn has returned the lease is released and Run returns. ErrNoLeader when
// this process doesn't lead.
func (e *Elector) Resign() error { return e.resign("") }

// HandOver is Resign for the benefit of one candidate, by its Holder: for 5 s
// after the release nobody else can lead. When the candidate isn't there, anybody
// can after that.
func (e *Elector) HandOver(candidate string) error {
	if candidate == "" || len(candidate) > maxNameBytes || !validText(candidate) {
		return fmt.Errorf("%w: the candidate must have 1 to %d bytes of UTF-8 without NUL", ErrInvalidConfig, maxNameBytes)
	}
	return e.resign(candidate)
}

func (e *Elector) resign(candidate string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.term == nil {
		return ErrNoLeader
	}
	e.term.resigned = true
	e.term.candidate = cmp.Or(candidate, e.term.candidate) // Resign doesn't take a hand-over back
	e.term.cancel(ErrResigned)
	return nil
}

// Leader says who leads, since when (AcquiredAt), with which token, and which
// term it is, counted from 1 (Transitions). ErrNoLeader when nobody does. One statement.
func (e *Elector) Leader(ctx context.Context) (*LeaseInfo, error) {
	info, err := e.client.Get(ctx, e.name)
	if err != nil {
		return nil, err
	}
	if !info.Held {
		return nil, fmt.Errorf("%w of %q", ErrNoLeader, e.name)
	}
	return info, nil
}

// Observe sends the state of the election now and then each change of leader, a
// state without one included (Held is false). A slow reader gets the newest state
// and misses those between. The channel is closed when ctx ends or the client
// closes, at once when Poll is negative. It looks once a Poll; a look that fails is
// logged and repeated.
func (e *Elector) Observe(ctx context.Context) <-chan LeaseInfo {
	states := make(chan LeaseInfo, 1)
	watch := func() {
		defer close(states)
		e.observe(ctx, states)
	}
	if e.opts.Poll < 0 || !e.client.inBackground(watch) {
		close(states)
	}
	return states
}

func (e *Elector) observe(ctx context.Context, states chan LeaseInfo) {
	var last LeaseInfo
	for first := true; ctx.Err() == nil; {
		look, cancel := context.WithTimeout(ctx, cleanupTimeout) // Close waits for it
		info, err := e.client.Get(look, e.name)
		cancel()
		switch {
		case err != nil:
			if ctx.Err() == nil {
				e.client.cfg.Logger.WarnContext(ctx, "look at the leader is retried", "lease", e.name, "err", err)
			}
		case first || info.Held != last.Held || info.Token != last.Token:
			first, last = false, *info
			select {
			case <-states: // what was not read is old
			default:
			}
			states <- *info
		}
		if e.client.sleep(ctx, jitter(e.opts.Poll)) != nil {
			return
		}
	}
}
