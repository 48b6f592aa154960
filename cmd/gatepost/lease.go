package main

import (
	"context"
	"strconv"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// lease is a name as the commands show it.
type lease struct {
	pglock.LeaseInfo
	waiters int64
}

// now is the database's clock when the lease was read.
func (l lease) now() time.Time { return l.ExpiresAt.Add(-l.Left) }

// lapsed says that its holder neither renewed nor released it.
func (l lease) lapsed() bool { return !l.Held && l.Holder != "" }

// left says how long the lease lasts unless it is renewed.
func (l lease) left(duration func(time.Duration) string) (string, cli.Style) {
	switch {
	case l.Held:
		return "in " + duration(l.Left), cli.Good
	case l.lapsed():
		return "expired " + duration(l.Left) + " ago", cli.Bad
	default:
		return "free", cli.Faint
	}
}

// since is how long ago the name came into its state.
func (l lease) since() time.Duration {
	if l.Held || l.lapsed() {
		return l.now().Sub(l.AcquiredAt)
	}
	return -l.Left
}

// pageSize is how many names are read at once.
const pageSize = 1000

// readLeases reads all names that the options choose, page by page, and who waits.
func readLeases(ctx context.Context, db database, opts pglock.ListOptions) ([]lease, error) {
	opts.Limit = pageSize
	all := []lease{}
	for {
		page, err := db.client.List(ctx, &opts)
		if err != nil {
			return nil, err
		}
		all, err = withWaiters(ctx, db.pool, all, page)
		if err != nil || len(page) < pageSize {
			return all, err
		}
		opts.After = page[len(page)-1].Name
	}
}

func withWaiters(ctx context.Context, pool *pgxpool.Pool, all []lease, page []pglock.LeaseInfo) ([]lease, error) {
	// Also of an empty page: a standby, which may lag, is noticed by that.
	names := make([]string, len(page))
	for i, info := range page {
		names[i] = info.Name
	}
	counts, err := operator.WaiterCounts(ctx, pool, names)
	if err != nil {
		return nil, err
	}
	for _, info := range page {
		all = append(all, lease{info, counts[info.Name]})
	}
	return all, nil
}

// leaseTable is names as a table.
func leaseTable(leases []lease) cli.Table {
	t := cli.Table{Columns: []cli.Column{
		{Title: "NAME", Cut: true},
		{Title: "HOLDER", Cut: true},
		{Title: "TOKEN", Right: true},
		{Title: "TERM", Right: true, Extra: 2},
		{Title: "LEFT"},
		{Title: "WAITERS", Right: true, Extra: 1},
		{Title: "SINCE", Extra: 3},
	}}
	for _, l := range leases {
		left, style := l.left(cli.Coarse)
		t.Rows = append(t.Rows, []cli.Cell{
			{Text: cli.Printable(l.Name)},
			{Text: cli.Printable(l.Holder)},
			{Text: tokenText(l.Token)},
			{Text: strconv.FormatInt(l.Transitions, 10)},
			{Text: left, Style: style},
			{Text: strconv.FormatInt(l.waiters, 10), Style: waiting(l.waiters)},
			{Text: cli.Coarse(l.since()) + " ago", Style: cli.Faint},
		})
	}
	return t
}

func waiting(n int64) cli.Style {
	if n > 0 {
		return cli.Warn
	}
	return cli.Faint
}
