package pglock

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// collectAtOnce is how many names one statement of GC reads: a transaction that is
// short.
const collectAtOnce = 1000

// GC removes the rows of names that nobody has held for a week, released or lapsed: of
// names such as "job/4711", that are used once. It changes nothing for holders and
// waiters, and the next token of such a name is still higher than its last: it comes
// from the clock. A name whose row a fenced transaction has locked stays.
//
// Run it on every node, once a day or less. It reads all names, by the primary key and
// 1,000 a transaction, and skips rows that are locked. When ctx ends it returns ctx's
// error with what was removed until there. It works on a closed Client too.
//
// Errors: ErrNotMigrated.
func (c *Client) GC(ctx context.Context) (removed int64, err error) {
	page := lockdb.LeaseCollectParams{Most: collectAtOnce, Remove: collectAtOnce}
	for {
		var row lockdb.LeaseCollectRow
		err := onPool(ctx, c.pool, func(conn *pgx.Conn) (err error) {
			row, err = inShortTx(conn).LeaseCollect(ctx, page)
			return err
		})
		if err != nil {
			return removed, fmt.Errorf("collect names that are free: %w", translate(err))
		}
		removed += row.Removed
		if row.Seen < collectAtOnce {
			c.cfg.Logger.DebugContext(ctx, "names that were free for a week removed", "leases", removed)
			return removed, nil
		}
		page.AfterName, page.AfterSlot = row.LastName, row.LastSlot
	}
}
