package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Detail is what pglock's LeaseInfo leaves out.
type Detail struct {
	// ReservedFor is for whom a free name is kept until ReservedUntil.
	ReservedFor   string
	ReservedUntil time.Time
}

// DetailOf reads the detail of a name; the zero Detail when it has no row. One
// statement, no lock.
func DetailOf(ctx context.Context, pool *pgxpool.Pool, name string) (Detail, error) {
	row, err := lockdb.New(pool).LeaseDetail(ctx, lockdb.LeaseDetailParams{Name: name})
	if errors.Is(err, pgx.ErrNoRows) {
		return Detail{}, nil
	}
	if err != nil {
		return Detail{}, fmt.Errorf("read %q: %w", name, err)
	}
	if row.ReservedFor == "" { // what a release left in the other column means nothing
		return Detail{}, nil
	}
	return Detail{ReservedFor: row.ReservedFor, ReservedUntil: row.ReservedUntil.Time}, nil
}
