package incident

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/jackc/pgx/v5/pgxpool"
)

// stepTimeout bounds each wait for an importer; none takes a second.
const stepTimeout = 30 * time.Second

// demo plays the acts.
type demo struct {
	options
	scratch scratch
	pool    *pgxpool.Pool
	out     cli.Screen
}

func (d *demo) run(ctx context.Context) error {
	if err := d.introduce(ctx); err != nil {
		return err
	}
	var outcomes []outcome
	for i, a := range acts {
		title := fmt.Sprintf("%d. %s", i+1, a.title)
		fmt.Fprintf(d.out.W, "\n%s\n%s\n%s\n\n", d.out.Paint(title, cli.Bold), strings.Repeat("=", len(title)), a.intro)
		o, err := d.play(ctx, a)
		if err != nil {
			return fmt.Errorf("act %d, %s: %w", i+1, a.title, err)
		}
		fmt.Fprintf(d.out.W, "\nrecords %s; rows in the table %s; %s; refused writes %s\n",
			cli.Number(d.records), cli.Number(o.rows), d.out.Paint("duplicates "+cli.Number(o.duplicates()), verdict(o)), cli.Number(o.refused))
		if err := a.check(d.options, o); err != nil {
			return fmt.Errorf("act %d, %s, did not come out as promised: %w", i+1, a.title, err)
		}
		fmt.Fprintf(d.out.W, "%s\n", a.explain(d.options, o))
		outcomes = append(outcomes, o)
	}
	d.conclude(outcomes)
	return nil
}

func (d *demo) introduce(ctx context.Context) error {
	var version string
	if err := d.pool.QueryRow(ctx, `SHOW server_version`).Scan(&version); err != nil {
		return err
	}
	version, _, _ = strings.Cut(version, " ") // without the packager's name
	fmt.Fprintf(d.out.W, "PostgreSQL %s; scratch schema %s, dropped at the end.\n", version, d.scratch)
	fmt.Fprintf(d.out.W, `
The incident, three times. Importers A and B are given the same file of %s
records. A is stopped in the middle, as by a long garbage collection or a frozen
machine, for longer than a lease lasts (%s). B begins. Then A wakes up, and
doesn't know that it was gone. Both are real processes, and the stop is real.
`, cli.Number(d.records), d.ttl)
	return nil
}

func (d *demo) conclude(outcomes []outcome) {
	fmt.Fprintf(d.out.W, "\n%s\n\n  %-25s %7s %10s %7s\n", d.out.Paint("What came of it", cli.Bold), "", "rows", "duplicates", "refused")
	for i, o := range outcomes {
		duplicates := fmt.Sprintf("%10s", cli.Number(o.duplicates()))
		fmt.Fprintf(d.out.W, "  %d. %-22s %7s %s %7s  %s\n", i+1, acts[i].title,
			cli.Number(o.rows), d.out.Paint(duplicates, verdict(o)), cli.Number(o.refused), acts[i].lesson)
	}
	fmt.Fprintf(d.out.W, `
Take the unique key (3) where a record has one, the fence (2) where it has none,
and a lease alone (1) only to save work, never to be right.
%s
`, d.Next)
}

func verdict(o outcome) cli.Style {
	if o.duplicates() > 0 {
		return cli.Bad
	}
	return cli.Good
}

// play runs one act, in an order that nothing is left to chance in: each step
// waits for the one before. Its importers have ended when it returns.
func (d *demo) play(ctx context.Context, a act) (o outcome, err error) {
	if _, err := d.pool.Exec(ctx, d.scratch.sql(a.tables)); err != nil {
		return o, err
	}
	p := newPerformance(d, a)
	defer func() { err = errors.Join(err, p.end()) }()
	for _, step := range []func(context.Context) error{p.stopA, p.awaitLapse, p.beginB, p.wakeA, p.toTheEnd} {
		if err := step(ctx); err != nil {
			return o, err
		}
	}
	o = p.outcome
	o.rows, o.distinct, err = d.scratch.counts(ctx, d.pool)
	return o, err
}
