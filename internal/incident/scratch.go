package incident

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// scratch is the schema that a demo works in, and the name of its lease.
type scratch string

var scratchName = regexp.MustCompile(`^gatepost_demo_[a-z0-9]+$`)

// sql puts the schema's name for "demo." in a statement.
func (s scratch) sql(text string) string {
	return strings.ReplaceAll(text, " demo.", " "+string(s)+".")
}

func (s scratch) table(name string) pgx.Identifier { return pgx.Identifier{string(s), name} }

// createScratch makes a schema that no other run has. A database without
// Gatepost's own schema is refused before anything is made.
func createScratch(ctx context.Context, pool *pgxpool.Pool) (scratch, error) {
	var missing bool
	if err := pool.QueryRow(ctx, `SELECT to_regclass('gatepost.leases') IS NULL`).Scan(&missing); err != nil {
		return "", err
	}
	if missing {
		return "", pglock.ErrNotMigrated
	}
	s := scratch("gatepost_demo_" + strings.ToLower(rand.Text()[:8]))
	if _, err := pool.Exec(ctx, "CREATE SCHEMA "+string(s)); err != nil {
		return "", errors.Join(err, s.drop(ctx, pool)) // it may be there all the same
	}
	return s, nil
}

// drop removes the schema, and the row of the lease in gatepost.leases where the
// role may do that; else a garbage collection does it later. The importers have
// ended before.
func (s scratch) drop(ctx context.Context, pool *pgxpool.Pool) error {
	// The demo's ctx is over when somebody pressed Ctrl-C.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	_, _ = pool.Exec(ctx, `DELETE FROM gatepost.leases WHERE name = $1`, string(s))
	if _, err := pool.Exec(ctx, "DROP SCHEMA IF EXISTS "+string(s)+" CASCADE"); err != nil {
		return fmt.Errorf("the schema %s may be left, drop it by hand: %w", s, err)
	}
	return nil
}

// counts looks at what an act left in the table.
func (s scratch) counts(ctx context.Context, pool *pgxpool.Pool) (rows, distinct int64, err error) {
	err = pool.QueryRow(ctx, s.sql(`SELECT count(*), count(DISTINCT line) FROM demo.orders`)).Scan(&rows, &distinct)
	return rows, distinct, err
}
