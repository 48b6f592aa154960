package incident

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
)

// performance is one act while it is played.
type performance struct {
	*demo
	act
	line    *timeline
	events  chan childEvent
	a, b    *child
	outcome outcome
}

func newPerformance(d *demo, a act) *performance {
	// More places than the importers have events, so that none of them ever
	// waits for the demo.
	return &performance{demo: d, act: a, line: newTimeline(d.out), events: make(chan childEvent, 64)}
}

// end ends the importers, on whichever way the act ended.
func (p *performance) end() error {
	return errors.Join(p.a.end(), p.b.end())
}

// stopA starts A and stops it between its first batch and its second: it has
// reported the first, waits for our word, and gets it only once it is stopped.
func (p *performance) stopA(ctx context.Context) (err error) {
	if p.a, err = p.start("A"); err != nil {
		return err
	}
	if err := p.expect(ctx, p.a, eventBegun); err != nil {
		return err
	}
	if err := p.expect(ctx, p.a, eventCommitted); err != nil {
		return err
	}
	if err := p.a.stop(ctx); err != nil {
		return err
	}
	p.line.stopped = true
	p.line.event("A", cell{"IS STOPPED (SIGSTOP)", cli.Warn}, cell{})
	return p.a.proceed()
}

// awaitLapse waits until the database says that A's lease is over.
func (p *performance) awaitLapse(ctx context.Context) error {
	if p.lapsed == "" {
		return nil
	}
	err := poll(ctx, p.ttl+stepTimeout, "the end of A's lease", func() (lapsed bool, err error) {
		err = p.pool.QueryRow(ctx, p.scratch.sql(p.lapsed), string(p.scratch)).Scan(&lapsed)
		return lapsed, err
	})
	if err == nil {
		p.line.event("", cell{}, cell{"A's lease has lapsed", cli.Warn})
	}
	return err
}

// beginB brings B to where it has imported its first batch and waits.
func (p *performance) beginB(ctx context.Context) (err error) {
	if p.b, err = p.start("B"); err != nil {
		return err
	}
	if err := p.expect(ctx, p.b, eventBegun); err != nil {
		return err
	}
	return p.expect(ctx, p.b, eventCommitted)
}

// wakeA lets A run on, which doesn't know that it was stopped, and then B.
func (p *performance) wakeA(ctx context.Context) error {
	stopped, err := isStopped(p.a.pid())
	if err != nil {
		return err
	}
	if !stopped {
		return errors.New("importer A was to be stopped until now, but somebody woke it")
	}
	p.line.stopped = false
	p.line.event("A", cell{"WAKES UP (SIGCONT)", cli.Warn}, cell{})
	if err := p.a.wake(); err != nil {
		return err
	}
	if p.onWake != "" {
		if err := p.expect(ctx, p.a, p.onWake); err != nil {
			return err
		}
	}
	return p.b.proceed()
}

// toTheEnd waits until both processes have ended.
func (p *performance) toTheEnd(ctx context.Context) error {
	for running := 2; running > 0; {
		e, err := p.next(ctx)
		switch {
		case err != nil:
			return err
		case e.over:
			running--
		case e.Kind == eventRenewed && e.child == p.b:
			// As accepted as A's.
		case e.Kind == eventDone:
			p.tell(e)
		default:
			return e.unexpected(eventDone)
		}
	}
	return nil
}

// expect waits for the next event of both importers, which has to be this one.
func (p *performance) expect(ctx context.Context, c *child, kind string) error {
	e, err := p.next(ctx)
	if err != nil {
		return err
	}
	if e.child != c || e.over || e.Kind != kind {
		return e.unexpected(kind)
	}
	p.tell(e)
	return nil
}

func (p *performance) next(ctx context.Context) (childEvent, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, stepTimeout, fmt.Errorf("the importers gave no sign for %s", stepTimeout))
	defer cancel()
	select {
	case e := <-p.events:
		return e, e.err
	case <-ctx.Done():
		return childEvent{}, context.Cause(ctx)
	}
}

// tell prints an event and remembers what the outcome is made of.
func (p *performance) tell(e childEvent) {
	does, database := p.words(e.child.who, e.event)
	p.line.event(e.child.who, cell{text: does}, cell{database, p.style(e.event)})
	token, ending := &p.outcome.tokenA, &p.outcome.a
	if e.child == p.b {
		token, ending = &p.outcome.tokenB, &p.outcome.b
	}
	switch e.Kind {
	case eventBegun:
		*token = e.Token
	case eventRefused:
		p.outcome.refused++
		*ending = e.event
	case eventDone:
		*ending = e.event
	}
}

// style is how the database's answer looks: the one that the act is about stands out.
func (p *performance) style(e event) cli.Style {
	switch e.Kind {
	case eventRenewed:
		return cli.Bad
	case eventRefused:
		return cli.Good
	default:
		return cli.Plain
	}
}

// words says in plain language what an importer did and how the database answered.
func (p *performance) words(who string, e event) (does, database string) {
	span := fmt.Sprintf("%s to %s", cli.Number(e.First), cli.Number(e.Last))
	switch e.Kind {
	case eventBegun:
		return p.beginning(e)
	case eventCommitted:
		return "imports " + span, p.committed(e)
	case eventRenewed:
		return "renews its lease", "ACCEPTED, although the lease is B's"
	case eventRefused:
		return "writes " + span + "; ends on the error", fmt.Sprintf("REFUSED, FencedError: the current token is %d", e.Current)
	default:
		return "ends with the file", fmt.Sprintf("%s rows are %s's", cli.Number(e.Inserted), who)
	}
}

func (p *performance) beginning(e event) (does, database string) {
	if p.lapsed == "" {
		return "begins, without a lease", ""
	}
	does, database = "takes the lease", "grants it"
	if e.Last > 0 {
		does += ", goes on at record " + cli.Number(e.Last+1)
	}
	if e.Token > 0 {
		database = fmt.Sprintf("grants it with token %d", e.Token)
	}
	return does, database
}

func (p *performance) committed(e event) string {
	switch p.guard {
	case guardFenced:
		return "token is current: committed"
	case guardKeyed:
		return fmt.Sprintf("%s inserted, %s already there", cli.Number(e.Inserted), cli.Number(e.Existed))
	default:
		return "committed"
	}
}

// poll looks every few milliseconds until a state holds.
func poll(ctx context.Context, within time.Duration, what string, holds func() (bool, error)) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("%s did not come within %s", what, within))
	defer cancel()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for {
		if ok, err := holds(); ok || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
