package idem

import (
	"context"
	"fmt"
	"slices"
	"strings"

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
// key order with one INSERT. Where a concurrent loader was faster, the table's
// constraint refuses that INSERT, and it is repeated with ON CONFLICT DO
// NOTHING: looking first makes it fast, the constraint makes it right.
//
// On an error the transaction is to be rolled back; nothing of rows is in the
// table then. Eight round trips and one pass over rows; needs TEMPORARY on the
// database and SELECT and INSERT on the table.
//
// Errors: ErrInvalidKey (also for a row whose key has a NULL), ErrNoUniqueKey,
// ErrRetryTx.
func CopyOnce(ctx context.Context, tx pgx.Tx, t Target, rows pgx.CopyFromSource) (Counts, error) {
	if err := t.validate(); err != nil {
		return Counts{}, err
	}
	if err := t.needUniqueKey(ctx, tx); err != nil {
		return Counts{}, err
	}
	s := staging{Target: t, tx: tx}
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

// staging is the temporary table of one call.
type staging struct {
	Target
	tx      pgx.Tx
	ordinal string // its column with the place in the input
}

// stagingTable is reached through pg_temp, so no table of the application's can
// be meant instead.
var stagingTable = pgx.Identifier{"pg_temp", "gatepost_copy"}

func (s *staging) load(ctx context.Context, rows pgx.CopyFromSource) (Counts, error) {
	if err := s.create(ctx); err != nil {
		return Counts{}, err
	}
	n, err := s.tx.CopyFrom(ctx, stagingTable, append([]string{s.ordinal}, s.Columns...), &numbered{CopyFromSource: rows})
	if err != nil {
		return Counts{}, err
	}
	counts := Counts{Rows: n}
	distinct, err := s.distinct(ctx)
	if err != nil {
		return Counts{}, err
	}
	counts.Duplicate = n - distinct
	if counts.Inserted, err = s.insert(ctx); err != nil {
		return Counts{}, err
	}
	if err := s.compare(ctx, &counts); err != nil {
		return Counts{}, err
	}
	counts.Existed = distinct - counts.Inserted - counts.Changed
	// Dropped now, so that CopyOnce can be called again in this transaction.
	_, err = s.tx.Exec(ctx, "DROP TABLE "+stagingTable.Sanitize())
	return counts, err
}

// create makes the table with the target's column types and none of its
// constraints.
func (s *staging) create(ctx context.Context) error {
	s.ordinal = "gatepost_ordinal"
	for slices.Contains(s.Columns, s.ordinal) {
		s.ordinal += "_"
	}
	_, err := s.tx.Exec(ctx, "CREATE TEMPORARY TABLE "+stagingTable.Sanitize()+" ON COMMIT DROP AS"+
		" SELECT NULL::bigint AS "+quote(s.ordinal)+", "+columnList("", s.Columns)+
		" FROM "+s.Table.Sanitize()+" WITH NO DATA")
	return err
}

// distinct counts the keys of the input. A NULL in one is refused: a unique
// index lets any number of them in.
func (s *staging) distinct(ctx context.Context) (n int64, err error) {
	nulls := make([]string, len(s.Key))
	for i, k := range s.Key {
		nulls[i] = quote(k) + " IS NULL"
	}
	var first *int64
	err = s.tx.QueryRow(ctx, "SELECT count(*), min(first) FILTER (WHERE "+strings.Join(nulls, " OR ")+")"+
		" FROM (SELECT "+columnList("", s.Key)+", min("+quote(s.ordinal)+") AS first FROM "+stagingTable.Sanitize()+
		" GROUP BY "+columnList("", s.Key)+") AS keys").Scan(&n, &first)
	if err == nil && first != nil {
		err = fmt.Errorf("%w: row %d has a NULL in %s", ErrInvalidKey, *first, columnList("", s.Key))
	}
	return n, err
}

// insert moves the new rows: fast first, and on a unique violation again in the
// way that can't meet one. The nested transaction is a savepoint, so that the
// violation costs only the INSERT.
func (s *staging) insert(ctx context.Context) (int64, error) {
	nested, err := s.tx.Begin(ctx)
	if err != nil {
		return 0, err
	}
	tag, err := nested.Exec(ctx, s.insertSQL()+" ORDER BY "+columnList("s", s.Key))
	if err == nil {
		return tag.RowsAffected(), nested.Commit(ctx)
	}
	if rollback := nested.Rollback(ctx); rollback != nil || sqlState(err) != stateUniqueViolation {
		return 0, err
	}
	tag, err = s.tx.Exec(ctx, s.insertSQL()+" ORDER BY "+columnList("s", s.Key)+
		" ON CONFLICT ("+columnList("", s.Key)+") DO NOTHING")
	return tag.RowsAffected(), err
}

func (s *staging) insertSQL() string {
	return "INSERT INTO " + s.Table.Sanitize() + " (" + columnList("", s.Columns) + ")" +
		" SELECT " + columnList("s", s.Columns) + " FROM (" + s.firstSQL() + ") AS s" +
		" WHERE NOT EXISTS (SELECT FROM " + s.Table.Sanitize() + " AS t WHERE " + s.sameKey() + ")"
}

// firstSQL is the first row of each key.
func (s *staging) firstSQL() string {
	return "SELECT DISTINCT ON (" + columnList("", s.Key) + ") " + quote(s.ordinal) + ", " + columnList("", s.Columns) +
		" FROM " + stagingTable.Sanitize() + " ORDER BY " + columnList("", s.Key) + ", " + quote(s.ordinal)
}

func (s *staging) sameKey() string {
	equal := make([]string, len(s.Key))
	for i, k := range s.Key {
		equal[i] = qualified("t", k) + " = " + qualified("s", k)
	}
	return strings.Join(equal, " AND ")
}

// compare counts rows that are there with other content. It runs after the
// INSERT, so that it also sees what a concurrent loader put there. As text,
// because not each type can be compared.
func (s *staging) compare(ctx context.Context, counts *Counts) error {
	if len(s.Compare) == 0 {
		return nil
	}
	differs := make([]string, len(s.Compare))
	for i, c := range s.Compare {
		differs[i] = qualified("t", c) + "::text IS DISTINCT FROM " + qualified("s", c) + "::text"
	}
	return s.tx.QueryRow(ctx, "SELECT count(*), coalesce(min("+qualified("s", s.ordinal)+"), 0)"+
		" FROM ("+s.firstSQL()+") AS s JOIN "+s.Table.Sanitize()+" AS t ON "+s.sameKey()+
		" WHERE "+strings.Join(differs, " OR ")).Scan(&counts.Changed, &counts.FirstChanged)
}

// numbered puts the place in the input, from 1, before each row's values.
type numbered struct {
	pgx.CopyFromSource
	n int64
}

func (s *numbered) Values() ([]any, error) {
	values, err := s.CopyFromSource.Values()
	if err != nil {
		return nil, err
	}
	s.n++
	return append([]any{s.n}, values...), nil
}
