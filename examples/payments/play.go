package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// errNotOnce says that a purchase was not charged exactly once.
var errNotOnce = errors.New("not every purchase was charged exactly once")

// play plays the scenes, and counts behind each what is in the database and at the
// provider.
func (d *demo) play(ctx context.Context) error {
	if err := d.introduce(ctx); err != nil {
		return err
	}
	d.start = time.Now()
	if err := errors.Join(d.startProvider(ctx), d.startServer(ctx)); err != nil {
		return err
	}
	var sum tally
	var rows []tally
	for i, s := range scenes {
		title := fmt.Sprintf("%d. %s", i+1, s.title)
		d.begin(title+"\n"+strings.Repeat("=", len(title)), s.intro+"\n", s.quiet)
		got, err := d.playScene(ctx, s, sum)
		if err != nil {
			return fmt.Errorf("scene %d, %s: %w", i+1, s.title, err)
		}
		rows = append(rows, got)
		sum.add(got)
	}
	return d.conclude(ctx, rows, sum)
}

func (d *demo) introduce(ctx context.Context) error {
	var version string
	if err := d.pool.QueryRow(ctx, `SHOW server_version`).Scan(&version); err != nil {
		return err
	}
	version, _, _ = strings.Cut(version, " ") // without the packager's name
	how := "with idempotency"
	if d.naive {
		how = "WITHOUT idempotency"
	}
	d.printf(`PostgreSQL %s; scratch schema %s, dropped at the end.
Clients place orders and charge them, %s. Client, service and
provider are processes, and what is killed is really killed.
`, version, d.tables.schema, how)
	return nil
}

// playScene plays one, and returns what was counted in it: before is what there was of
// orders and charges.
func (d *demo) playScene(ctx context.Context, s scene, before tally) (tally, error) {
	answers, err := s.play(ctx, d, rand.Text())
	if err != nil {
		return tally{}, err
	}
	got := d.counted()
	if got.orders, got.charges, err = d.totals(ctx); err != nil {
		return got, err
	}
	got.orders -= before.orders
	got.charges -= before.charges
	if s.quiet {
		d.note(fmt.Sprintf("%d requests, %d of them 409, %d replayed", got.requests, got.conflicts, got.replays))
	}
	if d.naive {
		return got, nil
	}
	return got, errors.Join(oneAnswer(answers), s.happened(got))
}

// totals counts orders in the database and charges at the provider.
func (d *demo) totals(ctx context.Context) (orders, charges int, err error) {
	all, err := d.charges(ctx)
	if err != nil {
		return 0, 0, err
	}
	err = d.pool.QueryRow(ctx, `SELECT count(*) FROM `+d.tables.orders).Scan(&orders)
	return orders, len(all), err
}

// oneAnswer wants every client to have got the same bytes.
func oneAnswer(answers []event) error {
	for _, a := range answers {
		if a.Status != http.StatusCreated || a.Body != answers[0].Body {
			return fmt.Errorf("one purchase was answered %d %q and %d %q", answers[0].Status, answers[0].Body, a.Status, a.Body)
		}
	}
	return nil
}

// happened wants the scene to be the one that was announced.
func (s scene) happened(got tally) error {
	if got.replays < s.least.replays || got.conflicts < s.least.conflicts ||
		got.refused < s.least.refused || got.takeovers < s.least.takeovers {
		return fmt.Errorf("counted %+v, not at least %+v", got, s.least)
	}
	return nil
}

// conclude prints the table and decides: each purchase is one order and one charge, and
// the charges in the database are those at the provider.
func (d *demo) conclude(ctx context.Context, rows []tally, sum tally) error {
	const head, row = "%-31s %8s %4s %7s %9s %6s %7s\n", "%-31s %8d %4d %7d %9d %6d %7d\n"
	d.printf("\n"+head, "one purchase each", "requests", "409", "replays", "takeovers", "orders", "charges")
	once := true
	for i, r := range rows {
		d.printf(row, fmt.Sprintf("%d. %s", i+1, scenes[i].title), r.requests, r.conflicts, r.replays, r.takeovers, r.orders, r.charges)
		once = once && r.orders == 1 && r.charges == 1
	}
	d.printf(row, "", sum.requests, sum.conflicts, sum.replays, sum.takeovers, sum.orders, sum.charges)
	differ, err := d.differing(ctx)
	if err != nil {
		return err
	}
	d.printf("charges that only the provider or only the database knows: %d\n\n", differ)
	if !once || differ > 0 {
		d.printf("exactly once: no\n")
		return fmt.Errorf("%w: %d purchases, %d orders, %d charges", errNotOnce, len(rows), sum.orders, sum.charges)
	}
	d.printf("exactly once: yes\n")
	return nil
}

// differing counts charges that are not both at the provider and in the database.
func (d *demo) differing(ctx context.Context) (differ int, err error) {
	all, err := d.charges(ctx)
	if err != nil {
		return 0, err
	}
	known := map[string]int{}
	for _, c := range all {
		known[c.ID]++
	}
	rows, err := d.pool.Query(ctx, `SELECT id FROM `+d.tables.charges)
	if err != nil {
		return 0, err
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[string])
	for _, id := range ids {
		known[id]--
	}
	for _, n := range known {
		if n != 0 {
			differ++
		}
	}
	return differ, err
}
