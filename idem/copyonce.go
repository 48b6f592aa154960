package idem

import (
	"context"
	"fmt"
	"slices"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/jackc/pgx/v5"
)

// Target is where CopyOnce loads rows.
type Target struct {
	Table   pgx.Identifier // schema and name, unquoted
	Columns []string       // of the rows, in their order
	// Key names the columns, all of them in Columns, that say which record a row
	// is. A unique index must cover exactly them.
	Key []string
	// Compare names columns in which a row that is there already should equal the
	// new one. One that differs counts as Changed and is left as it is. Defaults
	// to none: a key that is there counts as Existed.
	Compare []string
}

// Counts says what became of each row: Rows = Inserted + Existed + Duplicate +
// Changed.
type Counts struct {
	Rows      int64 // read from the source
	Inserted  int64
	Existed   int64 // the key was in the table already
	Duplicate int64 // the key came earlier in the same input
	Changed   int64 // the key was in the table, with other content in Compare
	// FirstChanged is the place in the input, from 1, of the first row that
	// counts as Changed; 0 when none does.
	FirstChanged int64
}

// CopyOnce loads rows under a unique key, each key once, however often and from
// however many places it is called: rows whose key is there are left out, and
// the first of several equal keys in the input is the one that counts. The
// counts are exact also against concurrent loaders, since they come from what
// the INSERT did and not from what was looked up before it.
//
// It streams the rows by COPY into a temporary table, and moves the new ones in
// key order with one INSERT. A string is read by PostgreSQL as a literal of its
// column's type; other values are encoded as pgx does. Where a concurrent loader
// was faster, the table's constraint refuses that INSERT, and it is repeated with
// ON CONFLICT DO NOTHING: looking first makes it fast, the constraint makes it
// right.
//
// On an error the transaction is to be rolled back; nothing of rows is in the
// table then. Nine round trips, or eight, and one pass over rows: integer keys that
// rise from row to row, as those of a file's lines do, can't be equal, and are not
// looked through for it. It needs TEMPORARY on the database and SELECT and INSERT on
// the table.
//
// Errors: ErrInvalidKey (also for a row whose key has a NULL), ErrNoUniqueKey,
// ErrRetryTx, ErrNotStored. A *pgconn.PgError of a value that PostgreSQL refuses
// says in Where which row and column it was.
func CopyOnce(ctx context.Context, tx pgx.Tx, t Target, rows pgx.CopyFromSource) (Counts, error) {
	if err := t.validate(); err != nil {
		return Counts{}, err
	}
	if err := t.needUniqueKey(ctx, tx); err != nil {
		return Counts{}, err
	}
	s := staging{Target: t, tx: tx}
	if err := s.describe(ctx); err != nil {
		return Counts{}, err
	}
	counts, err := s.load(ctx, rows)
	if err != nil {
		return Counts{}, fmt.Errorf("copy into %s: %w", t.Table.Sanitize(), translate(err))
	}
	return counts, nil
}

func (t Target) validate() error {
	if err := validateKey(t.Table, t.Columns, t.Key); err != nil {
		return err
	}
	for _, c := range t.Compare {
		if !slices.Contains(t.Columns, c) {
			return fmt.Errorf("%w: Compare has %q, which is not among the columns", ErrInvalidKey, c)
		}
	}
	return nil
}

// needUniqueKey looks for the index, because the plain INSERT would succeed
// without one.
func (t Target) needUniqueKey(ctx context.Context, tx pgx.Tx) error {
	indexes, err := idemdb.New(tx).UniqueIndexes(ctx, t.Table.Sanitize())
	if err != nil {
		return fmt.Errorf("look for the unique key of %s: %w", t.Table.Sanitize(), translate(err))
	}
	key := slices.Sorted(slices.Values(t.Key))
	for _, columns := range indexes {
		slices.Sort(columns) // the server sorts by its collation
		if slices.Equal(columns, key) {
			return nil
		}
	}
	return noUniqueKey(t.Table, t.Key)
}

// describe asks for the columns' types.
func (s *staging) describe(ctx context.Context) error {
	rows, err := idemdb.New(s.tx).TargetColumns(ctx, s.Table.Sanitize())
	if err != nil {
		return fmt.Errorf("describe %s: %w", s.Table.Sanitize(), translate(err))
	}
	for _, c := range s.Columns {
		i := slices.IndexFunc(rows, func(r idemdb.TargetColumnsRow) bool { return r.Name == c })
		if i < 0 {
			return fmt.Errorf("%w: %s has no column %q", ErrInvalidKey, s.Table.Sanitize(), c)
		}
		s.oids = append(s.oids, uint32(rows[i].TypeOid))
		s.hooked = rows[i].Hooked
	}
	return nil
}
