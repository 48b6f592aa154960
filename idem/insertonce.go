package idem

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// DBTX is a pool, a connection or a transaction.
type DBTX interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

// outdated says whether err is a conflict with a change newer than the snapshot, of a
// statement that was a transaction of its own: nothing came of it, and the next one sees
// more. In a transaction of the caller's only the caller can repeat.
func outdated(db DBTX, err error) bool { return retryable(err) && outsideTx(db) }

func outsideTx(db DBTX) bool {
	switch db := db.(type) {
	case *pgxpool.Pool:
		return true
	case *pgxpool.Conn:
		return db.Conn().PgConn().TxStatus() == txNone
	case *pgx.Conn:
		return db.PgConn().TxStatus() == txNone
	default:
		return false
	}
}

// Outcome says whose row it is.
type Outcome int

// The outcomes of InsertOnce.
const (
	Inserted Outcome = iota + 1 // this call's
	Existed                     // an earlier one's, unchanged
)

func (o Outcome) String() string {
	switch o {
	case Inserted:
		return "inserted"
	case Existed:
		return "existed"
	default:
		return "Outcome(" + strconv.Itoa(int(o)) + ")"
	}
}

// Insert is one row to insert once.
type Insert struct {
	Table   pgx.Identifier // schema and name, unquoted
	Columns []string
	Values  []any // one a column
	// Key names the columns, all of them in Columns, that say which row it is. A
	// unique index must cover exactly them.
	Key []string
	// Returning names the columns that scan gets. Defaults to Columns.
	Returning []string
}

// maxRounds bounds the search for a winner that keeps disappearing.
const maxRounds = 5

// InsertOnce inserts the row unless one with its key is there, and returns the
// row that is: scan gets the Returning columns of either. An existing row is not
// changed, whatever its other columns hold.
//
// One statement when the row is new, two when it existed. On a transaction it
// holds what an INSERT holds; a concurrent insert of the same key is waited for.
//
// Errors: ErrInvalidKey (a key column is missing or NULL), ErrNoUniqueKey,
// ErrRetryTx (at REPEATABLE READ and SERIALIZABLE, when the winner is newer than
// the snapshot, and when the winner was deleted again and again; on a pool or a
// connection the statement is repeated first, up to five times).
func InsertOnce[T any](ctx context.Context, db DBTX, ins Insert, scan pgx.RowToFunc[T]) (T, Outcome, error) {
	var none T
	keyValues, err := ins.keyValues()
	if err != nil {
		return none, 0, err
	}
	var conflict error
	for range maxRounds {
		conflict = nil
		row, err := queryOne(ctx, db, scan, ins.insertSQL(), ins.Values)
		if err == nil {
			return row, Inserted, nil
		}
		if outdated(db, err) {
			conflict = err
			continue
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return none, 0, ins.failed(err)
		}
		// A new statement: the one that waited for the winner can't see it.
		row, err = queryOne(ctx, db, scan, ins.selectSQL(), keyValues)
		if err == nil {
			return row, Existed, nil
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return none, 0, ins.failed(err)
		}
	}
	if conflict != nil {
		return none, 0, ins.failed(conflict)
	}
	return none, 0, fmt.Errorf("insert into %s: %w: the row with this key was deleted %d times meanwhile",
		ins.Table.Sanitize(), ErrRetryTx, maxRounds)
}

func (ins Insert) failed(err error) error {
	if sqlState(err) == stateNoSuchArbiter {
		return noUniqueKey(ins.Table, ins.Key)
	}
	return fmt.Errorf("insert into %s: %w", ins.Table.Sanitize(), translate(err))
}

func (ins Insert) keyValues() ([]any, error) {
	if err := validateKey(ins.Table, ins.Columns, ins.Key); err != nil {
		return nil, err
	}
	if len(ins.Values) != len(ins.Columns) {
		return nil, fmt.Errorf("%w: %d values for %d columns", ErrInvalidKey, len(ins.Values), len(ins.Columns))
	}
	values := make([]any, 0, len(ins.Key))
	for _, k := range ins.Key {
		v := ins.Values[slices.Index(ins.Columns, k)]
		if isNull(v) {
			return nil, fmt.Errorf("%w: the value of %q is NULL, which is never equal to NULL", ErrInvalidKey, k)
		}
		values = append(values, v)
	}
	return values, nil
}

func (ins Insert) insertSQL() string {
	params := make([]string, len(ins.Columns))
	for i := range params {
		params[i] = "$" + strconv.Itoa(i+1)
	}
	return "INSERT INTO " + ins.Table.Sanitize() + " (" + columnList("", ins.Columns) + ")" +
		" VALUES (" + strings.Join(params, ", ") + ")" +
		" ON CONFLICT (" + columnList("", ins.Key) + ") DO NOTHING" +
		" RETURNING " + columnList("", ins.returning())
}

func (ins Insert) selectSQL() string {
	where := make([]string, len(ins.Key))
	for i, k := range ins.Key {
		where[i] = quote(k) + " = $" + strconv.Itoa(i+1)
	}
	return "SELECT " + columnList("", ins.returning()) + " FROM " + ins.Table.Sanitize() +
		" WHERE " + strings.Join(where, " AND ")
}

func (ins Insert) returning() []string {
	if len(ins.Returning) > 0 {
		return ins.Returning
	}
	return ins.Columns
}

func queryOne[T any](ctx context.Context, db DBTX, scan pgx.RowToFunc[T], sql string, args []any) (T, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		var none T
		return none, err
	}
	return pgx.CollectOneRow(rows, scan)
}

// validateKey refuses a target that could not be addressed by its key.
func validateKey(table pgx.Identifier, columns, key []string) error {
	switch {
	case len(table) == 0 || slices.Contains(table, ""):
		return fmt.Errorf("%w: the table has no name", ErrInvalidKey)
	case len(key) == 0:
		return fmt.Errorf("%w: it has no columns", ErrInvalidKey)
	}
	for i, c := range columns {
		if c == "" || slices.Contains(columns[:i], c) {
			return fmt.Errorf("%w: column %q of %s is empty or named twice", ErrInvalidKey, c, table.Sanitize())
		}
	}
	for i, k := range key {
		if !slices.Contains(columns, k) || slices.Contains(key[:i], k) {
			return fmt.Errorf("%w: its column %q is not among the columns of %s, or named twice", ErrInvalidKey, k, table.Sanitize())
		}
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

// columnList is names as SQL, each quoted and behind an alias if there is one.
func columnList(alias string, names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = qualified(alias, n)
	}
	return strings.Join(quoted, ", ")
}

func qualified(alias, name string) string {
	if alias == "" {
		return quote(name)
	}
	return alias + "." + quote(name)
}
