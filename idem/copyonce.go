package idem

import (
	"context"
	"errors"
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
// Rows whose keys are integers that rise from row to row, as those of a file's lines do,
// go by COPY straight into the table, in chunks of up to eight megabytes, two of them in
// memory, each in a savepoint and after a look whether the table has a key from the
// chunk's first to its last. A chunk of consecutive numbers that are all there is left out
// without a look at its values, and an import that is repeated then writes nothing. From
// the first other chunk that meets a key of the table on, where a concurrent loader is
// faster, and behind 48 chunks, which are some 210 MB or, of a slow source, 96 s, rows go
// by COPY into a temporary table, and the new ones from there in key order with one INSERT:
// looking first makes it fast, the table's constraint makes it right, since a key that it
// refuses is left out then by ON CONFLICT DO NOTHING. So do all rows with keys of other
// types or in another order, and those of a table where COPY may differ from an INSERT: one
// with triggers, rules or policies of its own or its partitions', an inheritance child, a
// foreign partition, a column that INSERT may not name, or one left out whose domain COPY
// wouldn't ask. Which keys are equal the unique index says, by its collations.
//
// A string is read by PostgreSQL as a literal of its column's type, an int64 as its digits;
// other values are encoded as pgx does.
//
// On an error the transaction is to be rolled back; nothing of rows is in the table then.
// It takes one pass over rows, in a goroutine that reads no longer when it returns; a panic
// or Goexit of rows goes on in the caller's. Straight it takes six round trips, and four more for
// each chunk after the first; by the temporary table eight to ten, and one for the look. In
// the server's log there is an ERROR only where a concurrent loader was faster, or for what
// is returned. It needs SELECT and INSERT on the table, and TEMPORARY on the database for
// what doesn't go straight. Where keys that rise over several chunks fall back, two loaders
// can meet in a deadlock, which is ErrRetryTx.
//
// Errors: ErrInvalidKey (also for a row whose key has a NULL), ErrNoUniqueKey,
// ErrRetryTx, ErrNotStored. A *pgconn.PgError of a value that PostgreSQL refuses
// says in Where which row and column it was: "COPY table, line ROW, column NAME", in the
// server's language, with ROW from 1.
func CopyOnce(ctx context.Context, tx pgx.Tx, t Target, rows pgx.CopyFromSource) (Counts, error) {
	return copyOnce(ctx, tx, t, rows, usualPace)
}

func copyOnce(ctx context.Context, tx pgx.Tx, t Target, rows pgx.CopyFromSource, p pace) (Counts, error) {
	if err := t.validate(); err != nil {
		return Counts{}, err
	}
	l := &loading{Target: t, tx: tx}
	if err := l.describe(ctx); err != nil {
		return Counts{}, err
	}
	l.text = newCopyText(tx.Conn().TypeMap(), l.oids, newAscent(l.Target, l.oids), rows)
	s := &straight{loading: l, pace: p}
	counts, err := l.load(ctx, s)
	err = s.end(ctx, err)
	if e, ok := errors.AsType[*sourceExit](l.text.err); ok {
		e.goOn()
	}
	if err != nil {
		return Counts{}, fmt.Errorf("copy into %s: %w", t.Table.Sanitize(), translate(err))
	}
	return counts, nil
}

// loading is one call of CopyOnce. Its Table is the one that the caller's name meant when it
// began: staging's own could come to be meant by one without a schema. The columns of its
// Key are in the unique index's order.
type loading struct {
	Target
	tx         pgx.Tx
	oids       []uint32 // of the columns' types
	collations []string // of the Key's columns in the index, where they aren't the columns' own
	hooked     bool     // something may change what an INSERT does with a row
	plain      bool     // COPY does what an INSERT does, and the index's columns ascend
	text       *copyText
}

// load brings the rows in: straight, and what doesn't go so by staging.
func (l *loading) load(ctx context.Context, s *straight) (Counts, error) {
	if l.plain {
		if err := s.run(ctx); err != nil {
			return Counts{}, err
		}
		if l.text.done && len(s.left) == 0 {
			return Counts{Rows: s.rows, Inserted: s.inserted, Existed: s.rows - s.inserted}, nil
		}
	}
	return (&staging{loading: l, straight: s}).load(ctx)
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

// describe asks for the columns' types, and for the key's index.
func (l *loading) describe(ctx context.Context) error {
	ascending, err := l.needUniqueKey(ctx)
	if err != nil {
		return err
	}
	rows, err := idemdb.New(l.tx).TargetColumns(ctx, l.Table.Sanitize())
	if err != nil {
		return fmt.Errorf("describe %s: %w", l.Table.Sanitize(), translate(err))
	}
	l.plain = ascending
	for _, r := range rows {
		l.Table, l.hooked = pgx.Identifier{r.SchemaName, r.TableName}, r.Hooked
		l.plain = l.plain && r.Plain && (!r.Unchecked || slices.Contains(l.Columns, r.Name))
	}
	for _, c := range l.Columns {
		i := slices.IndexFunc(rows, func(r idemdb.TargetColumnsRow) bool { return r.Name == c })
		if i < 0 {
			return fmt.Errorf("%w: %s has no column %q", ErrInvalidKey, l.Table.Sanitize(), c)
		}
		l.oids = append(l.oids, uint32(rows[i].TypeOid))
		l.plain = l.plain && rows[i].Given
	}
	return nil
}

// needUniqueKey looks for the index, because the plain INSERT would succeed
// without one. It says whether the columns ascend in it, all of them.
func (l *loading) needUniqueKey(ctx context.Context) (ascending bool, err error) {
	indexes, err := idemdb.New(l.tx).UniqueIndexes(ctx, l.Table.Sanitize())
	if err != nil {
		return false, fmt.Errorf("look for the unique key of %s: %w", l.Table.Sanitize(), translate(err))
	}
	key := slices.Sorted(slices.Values(l.Key))
	indexes = slices.DeleteFunc(indexes, func(r idemdb.UniqueIndexesRow) bool {
		return !slices.Equal(slices.Sorted(slices.Values(r.Columns)), key)
	})
	if len(indexes) == 0 {
		return false, noUniqueKey(l.Table, l.Key)
	}
	i := max(0, slices.IndexFunc(indexes, func(r idemdb.UniqueIndexesRow) bool { return r.Ascending }))
	l.Key, l.collations = indexes[i].Columns, indexes[i].Collations
	return indexes[i].Ascending, nil
}

// copySQL is a COPY of text in UTF-8, whatever the session's encoding is.
func copySQL(table pgx.Identifier, columns []string) string {
	return "COPY " + table.Sanitize() + " (" + columnList("", columns) + ") FROM STDIN (FORMAT text, ENCODING 'UTF8')"
}
