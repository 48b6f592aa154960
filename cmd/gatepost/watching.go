package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
)

// watch looks at leases again and again.
type watch struct {
	interval time.Duration
	json     bool
	screen   cli.Screen
	notes    io.Writer // where trouble is told when it isn't drawn
}

// lookTimeout bounds one look, so that a database that doesn't answer is noticed.
const lookTimeout = 5 * time.Second

// sight is where to look, and what a look looks like.
type sight struct {
	look func(context.Context) ([]lease, error)
	// lines draws what the last look saw, in that many columns.
	lines func(width int) []string
}

// drawing says whether it redraws in place.
func (w watch) drawing() bool { return w.screen.Terminal && !w.json }

func (w watch) sightOf(db database, args []string, opts pglock.ListOptions) sight {
	if len(args) == 0 {
		return w.all(db, opts)
	}
	return w.one(db, args[0])
}

func (w watch) all(db database, opts pglock.ListOptions) sight {
	opts.Free = opts.Free || !w.drawing() // only a free name tells that it was released
	var seen []lease
	return sight{
		look: func(ctx context.Context) (_ []lease, err error) {
			seen, err = readLeases(ctx, db, opts)
			return seen, err
		},
		lines: func(width int) []string {
			if len(seen) == 0 {
				return []string{w.screen.Paint(nothingHeld(opts.Free), cli.Faint)}
			}
			return leaseTable(seen).Lines(w.screen, width)
		},
	}
}

func (w watch) one(db database, name string) sight {
	var seen portrait
	return sight{
		look: func(ctx context.Context) ([]lease, error) {
			p, err := readPortrait(ctx, db, name)
			if errors.Is(err, errNeverAcquired) {
				p, err = portrait{lease: lease{LeaseInfo: pglock.LeaseInfo{Name: name}}}, nil
			}
			if err == nil {
				seen = p
			}
			return []lease{p.lease}, err
		},
		lines: func(width int) []string {
			if seen.Token == 0 {
				return []string{w.screen.Paint(cli.CutPainted(fmt.Sprintf("%q was never acquired, so far.", name), width), cli.Faint)}
			}
			return seen.lines(w.screen)
		},
	}
}

// run looks until ctx ends, which is how it is meant to end. When the first look fails,
// it does too; later ones are told and repeated.
func (w watch) run(ctx context.Context, s sight) error {
	show := w.log()
	if w.drawing() {
		painter := &cli.Painter{Screen: w.screen}
		defer painter.Finish()
		show = w.draw(s, painter)
	}
	tick := time.NewTicker(w.interval)
	defer tick.Stop()
	for first := true; ; first = false {
		look, cancel := context.WithTimeout(ctx, lookTimeout)
		leases, err := s.look(look)
		cancel()
		switch {
		case ctx.Err() != nil:
			return nil
		case err != nil && first:
			return err
		}
		if err := show(leases, err); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// draw redraws what was seen last, and below it why it isn't newer.
func (w watch) draw(s sight, painter *cli.Painter) func([]lease, error) error {
	seen := time.Now()
	return func(_ []lease, trouble error) error {
		width, _ := w.screen.Size()
		lines := s.lines(width)
		if trouble == nil {
			seen = time.Now()
		} else {
			text := fmt.Sprintf("As of %s ago: %s", cli.Duration(time.Since(seen)), cli.Explain(trouble))
			lines = append(w.screen.Wrapped(text, cli.Bad), lines...)
		}
		return painter.Draw(lines)
	}
}

// log prints changes, and trouble when it begins.
func (w watch) log() func([]lease, error) error {
	before, troubled := map[string]lease(nil), false
	return func(leases []lease, trouble error) error {
		if trouble != nil {
			if !troubled {
				fmt.Fprintf(w.notes, "gatepost: looking goes on: %s\n", cli.Explain(trouble))
			}
			troubled = true
			return nil
		}
		troubled = false
		for _, c := range changes(before, leases) {
			if err := c.print(w.screen.W, w.json); err != nil {
				return err
			}
		}
		before = map[string]lease{}
		for _, l := range leases {
			before[l.Name] = l
		}
		return nil
	}
}
