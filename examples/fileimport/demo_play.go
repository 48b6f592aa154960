package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// stepTimeout bounds each wait for an importer; none takes a second.
const stepTimeout = 30 * time.Second

// demo plays the acts.
type demo struct {
	demoOptions
	scratch scratch
	pool    *pgxpool.Pool
	out     io.Writer
}

func (d *demo) run(ctx context.Context) error {
	if err := d.introduce(ctx); err != nil {
		return err
	}
	var outcomes []outcome
	for i, a := range demoActs {
		title := fmt.Sprintf("%d. %s", i+1, a.title)
		fmt.Fprintf(d.out, "\n%s\n%s\n%s\n\n", title, strings.Repeat("=", len(title)), a.intro)
		o, err := d.play(ctx, a)
		if err != nil {
			return fmt.Errorf("act %d, %s: %w", i+1, a.title, err)
		}
		fmt.Fprintf(d.out, "\nrecords in the file %s; rows in the table %s; duplicates %s\n",
			number(d.records), number(o.rows), number(o.duplicates()))
		if err := a.check(d.demoOptions, o); err != nil {
			return fmt.Errorf("act %d, %s, did not come out as promised: %w", i+1, a.title, err)
		}
		fmt.Fprintf(d.out, "%s\n", a.explain(d.demoOptions, o))
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
	fmt.Fprintf(d.out, "PostgreSQL %s; scratch schema %s, dropped at the end.\n", version, d.scratch)
	fmt.Fprintf(d.out, `
The incident, three times. Importers A and B are given the same file of %s
records. A is stopped in the middle, as by a long garbage collection or a frozen
machine, for longer than a lease lasts (%s). B begins. Then A wakes up, and
doesn't know that it was gone. Both are real processes, and the stop is real.
`, number(d.records), d.ttl)
	return nil
}

func (d *demo) conclude(outcomes []outcome) {
	fmt.Fprintf(d.out, "\nWhat came of it\n\n  %-25s %8s %11s\n", "", "rows", "duplicates")
	for i, o := range outcomes {
		fmt.Fprintf(d.out, "  %d. %-22s %8s %11s   %s\n", i+1, demoActs[i].title,
			number(o.rows), number(o.duplicates()), demoActs[i].lesson)
	}
	fmt.Fprint(d.out, `
Take the unique key (3) where a record has one, the fence (2) where it has none,
and a lease alone (1) only to save work, never to be right.
"fileimport import" has (1) and (3). More about all three: README.md.
`)
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
