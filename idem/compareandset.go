package idem

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Update is one change of one row that has a version.
type Update struct {
	Table pgx.Identifier // schema and name, unquoted
	// Key says which row, a value a column: all columns of a unique key, and any
	// others that must hold.
	Key map[string]any
	// Set is what the row gets, a value a column. Empty raises the version alone.
	Set map[string]any
	// VersionColumn is a column of an integer type and NOT NULL, which nothing else
	// may write but to raise it. Defaults to "version".
	VersionColumn string
}

const (
	defaultVersionColumn = "version"
	// stateCardinality is the SQLSTATE of a subquery that gives a second row.
	stateCardinality = "21000"
)

// CompareAndSet changes the row if it still has the version that the caller read,
// and returns its new version, the old one plus one. Of any number of callers with
// one version, one succeeds. It needs none of Gatepost's tables and no lock before:
// what was computed from a row is written only over the row it was computed from.
//
// One statement; where it had to wait for a concurrent change of the row, a second.
// On any error the row is unchanged.
//
// Errors after which a transaction goes on: *StaleError with the version that is
// there; ErrNotFound; ErrNoVersion; ErrNotStored, when a trigger or a row-level
// policy keeps the row as it is; ErrInvalidKey for an Update that can't be one.
// Others: ErrRetryTx (40001, of a change newer than the snapshot, and 40P01; on a pool
// or a connection the statement is repeated first, up to five times);
// ErrNoUniqueKey, when the key finds several rows.
func CompareAndSet(ctx context.Context, db DBTX, u Update, version int64) (int64, error) {
	if u.VersionColumn == "" {
		u.VersionColumn = defaultVersionColumn
	}
	if err := u.validate(); err != nil {
		return 0, err
	}
	sql, args := u.statement(version)
	var conflict error
	for range maxRounds {
		conflict = nil
		var changed *int64
		var seen []*int64 // in the statement's snapshot: the version, or no row
		err := db.QueryRow(ctx, sql, args...).Scan(&changed, &seen)
		if outdated(db, err) {
			conflict = err
			continue
		}
		if err != nil {
			return 0, u.failed(err)
		}
		switch {
		case changed != nil:
			return *changed, nil
		case len(seen) == 0:
			return 0, fmt.Errorf("update %s: %w", u.Table.Sanitize(), ErrNotFound)
		case seen[0] == nil:
			return 0, fmt.Errorf("update %s: %w in %q", u.Table.Sanitize(), ErrNoVersion, u.VersionColumn)
		case *seen[0] != version:
			return 0, fmt.Errorf("update %s: %w", u.Table.Sanitize(), &StaleError{Current: *seen[0]})
		}
		// The row was changed while the statement ran: only a new one can see how.
	}
	if conflict != nil {
		return 0, u.failed(conflict)
	}
	return 0, fmt.Errorf("update %s: %w: a trigger or a row-level policy of the table kept it as it was", u.Table.Sanitize(), ErrNotStored)
}

// statement is the same text for the same columns, so that it is prepared once.
// Each subquery fails with 21000 on a second row, and that undoes the UPDATE: a key
// that isn't unique is refused before anything is committed. The versions are cast
// because a domain's array has a type that no client knows.
func (u Update) statement(version int64) (sql string, args []any) {
	column := qualified("r", u.VersionColumn)
	set := []string{quote(u.VersionColumn) + " = " + column + " + 1"}
	for _, name := range slices.Sorted(maps.Keys(u.Set)) {
		args = append(args, u.Set[name])
		set = append(set, quote(name)+" = $"+strconv.Itoa(len(args)))
	}
	var key []string
	for _, name := range slices.Sorted(maps.Keys(u.Key)) {
		args = append(args, u.Key[name])
		key = append(key, qualified("r", name)+" = $"+strconv.Itoa(len(args)))
	}
	args = append(args, version)
	where := " WHERE " + strings.Join(key, " AND ")
	return "WITH changed AS (UPDATE " + u.Table.Sanitize() + " AS r SET " + strings.Join(set, ", ") + where +
		" AND " + column + " = $" + strconv.Itoa(len(args)) + "::bigint RETURNING " + column + "::bigint AS version)" +
		" SELECT (SELECT c.version FROM changed AS c)," +
		" (SELECT ARRAY[" + column + "::bigint] FROM " + u.Table.Sanitize() + " AS r" + where + ")", args
}

func (u Update) validate() error {
	if len(u.Key) == 0 {
		return fmt.Errorf("%w: it has no columns", ErrInvalidKey)
	}
	names := slices.Concat(u.Table, []string{u.VersionColumn}, slices.Sorted(maps.Keys(u.Key)), slices.Sorted(maps.Keys(u.Set)))
	if err := validateNames(u.Table, names); err != nil {
		return err
	}
	for name, v := range u.Key {
		if isNull(v) {
			return fmt.Errorf("%w: the value of %q is NULL, which is never equal to NULL", ErrInvalidKey, name)
		}
	}
	_, inKey := u.Key[u.VersionColumn]
	_, inSet := u.Set[u.VersionColumn]
	if inKey || inSet {
		return fmt.Errorf("%w: the version column %q is compared and raised by itself, and not for Key or Set", ErrInvalidKey, u.VersionColumn)
	}
	return nil
}

// validateNames refuses what the server would cut to 63 bytes, which may be the name
// of something else.
func validateNames(table pgx.Identifier, names []string) error {
	if len(table) == 0 {
		return fmt.Errorf("%w: the table has no name", ErrInvalidKey)
	}
	for _, n := range names {
		if !storable(n, maxNameBytes) {
			return fmt.Errorf("%w: the name %q must be 1 to %d bytes of UTF-8 without NUL", ErrInvalidKey, n, maxNameBytes)
		}
	}
	return nil
}

func (u Update) failed(err error) error {
	// One with a context is of a trigger's own query.
	if pgErr, ok := errors.AsType[*pgconn.PgError](err); ok && pgErr.Code == stateCardinality && pgErr.Where == "" {
		return fmt.Errorf("update %s: %w: several rows have this key: %w", u.Table.Sanitize(), ErrNoUniqueKey, err)
	}
	return fmt.Errorf("update %s: %w", u.Table.Sanitize(), translate(err))
}
