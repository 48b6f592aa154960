package pglock

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// CodeFenced is the SQLSTATE with which the database refuses a write that no current
// fence covers: a guarded table's, and that of gatepost.fence. The *pgconn.PgError
// names the table and the lease, the current token and the presented one.
const CodeFenced = "GP001"

// maxIdentifierBytes is where PostgreSQL cuts a name, which may then be another's.
const maxIdentifierBytes = 63

// A Guard is a table's demand for a fence.
type Guard struct {
	Table       pgx.Identifier // schema and name, unquoted
	Lease       string         // the lease whose fence is demanded; empty with a LeaseColumn
	LeaseColumn string         // the column that names it in each row
	Holes       []GuardHole    // what passes by it; nil when nothing does
}

// A GuardHole is a part of a guarded table that is open.
type GuardHole struct {
	Table     pgx.Identifier // the table itself, a partition or a child
	Problem   GuardProblem
	RenamedTo string // the LeaseColumn's name now, with GuardColumnMissing; empty when it was dropped
}

// GuardProblem says what is wrong with a guard. GuardTable, called again, mends it: with
// the column's name where it was renamed, and with another where it was dropped.
type GuardProblem string

// What can be wrong with a guard.
const (
	// GuardMissing is of a partition or a child that came after the guard, or whose trigger
	// for statements was dropped. TRUNCATE of the partition passes, and everything that
	// names the child.
	GuardMissing GuardProblem = "unguarded"
	// GuardStatementMissing is of a table whose trigger for statements was dropped, or
	// changed to fire for less: TRUNCATE passes, statements that touch no row, and a
	// transaction that sets gatepost.fenced by hand.
	GuardStatementMissing GuardProblem = "statement"
	// GuardDisabled is of triggers that were disabled.
	GuardDisabled GuardProblem = "disabled"
	// GuardRowsMissing is of triggers for rows that were dropped or changed to fire for
	// less, or that a table lacks which came to be a partition or a child of one that is
	// not guarded: writes through that one pass.
	GuardRowsMissing GuardProblem = "rows"
	// GuardColumnMissing is of a LeaseColumn that was renamed or dropped: writes are
	// refused, unless the transaction holds the lease that the column names.
	GuardColumnMissing GuardProblem = "column"
)

// GuardOptions says which lease guards a table: exactly one of the two is set.
type GuardOptions struct {
	// Lease is the name of the one lease for the whole table.
	Lease string
	// LeaseColumn is the column, of a text, uuid or integer type, in which each row
	// names its lease. A generated column can make the name of others.
	LeaseColumn string
}

// GuardTable makes a table refuse, with the SQLSTATE CodeFenced, what is written by a
// transaction that presents no current fence of its lease: INSERT, UPDATE, DELETE,
// TRUNCATE, COPY and MERGE, from any program. Lease.InTx, Client.InTx, Fence and their
// kin present by themselves. Where a column names the lease, the old row's and the new
// row's are both demanded, and TRUNCATE is refused always.
//
// A statement that touches no row demands it too. Partitions and children are guarded
// with the table, and rows of partitions that are attached later; call it again after
// attaching one, for the TRUNCATE of it. It stops mistakes and forgotten programs, not
// the table's owner; docs/guards.md lists what passes.
//
// The role must own the table. One statement, which keeps writers out until db's
// transaction commits. When db is a pool or a connection it is a transaction of its own,
// at READ COMMITTED: one that has to wait for another call must see what that one did,
// which a caller's transaction at another level does not, and its error is the caller's
// to repeat. On an error nothing is changed. Calling it again is harmless; with other options it replaces the
// guard, and waits for all readers too.
//
// Cost for writers: an index look-up and a row lock a statement, about 30 us; on
// partitions and with a LeaseColumn a comparison a row besides. A row of a LeaseColumn
// is tested when the statement has stored it.
//
// Errors: ErrInvalidGuard for options or a table that can't be used, ErrInvalidName,
// ErrNotMigrated.
func GuardTable(ctx context.Context, db DBTX, table pgx.Identifier, opts GuardOptions) error {
	if err := validateGuard(table, opts); err != nil {
		return err
	}
	err := inOneTx(ctx, db, func(q *lockdb.Queries) error {
		return q.GuardAdd(ctx, lockdb.GuardAddParams{
			Relation: table.Sanitize(), Lease: notEmpty(opts.Lease), LeaseColumn: notEmpty(opts.LeaseColumn),
		})
	})
	if err != nil {
		return fmt.Errorf("guard %s: %w", table.Sanitize(), translateGuard(err))
	}
	return nil
}

// UnguardTable takes the guard off a table, its partitions and its children, and says
// whether there was one. The role must own the table. One statement, which waits for
// everybody who uses the table, and keeps them out until db's transaction commits.
//
// Errors: ErrInvalidGuard for a table that isn't there, or a partition whose guard is its
// parent's; ErrNotMigrated.
func UnguardTable(ctx context.Context, db DBTX, table pgx.Identifier) (removed bool, err error) {
	if err := validateIdentifier(table...); err != nil {
		return false, err
	}
	err = inOneTx(ctx, db, func(q *lockdb.Queries) (err error) {
		removed, err = q.GuardRemove(ctx, table.Sanitize())
		return err
	})
	if err != nil {
		return false, fmt.Errorf("unguard %s: %w", table.Sanitize(), translateGuard(err))
	}
	return removed, nil
}

// Guards lists the guarded tables of the database and the holes in their guards, by
// schema and name; partitions and children are their parent's. It reads what the
// catalogs say of triggers, so no right to the tables is needed. One statement, no lock.
//
// Errors: ErrNotMigrated.
func Guards(ctx context.Context, db DBTX) ([]Guard, error) {
	rows, err := lockdb.New(db).GuardList(ctx)
	if err != nil {
		return nil, fmt.Errorf("list guards: %w", translate(err))
	}
	var guards []Guard
	for _, row := range rows {
		table := pgx.Identifier{row.TableSchema, row.TableName}
		if len(guards) == 0 || guards[len(guards)-1].Table.Sanitize() != table.Sanitize() {
			guards = append(guards, Guard{Table: table, Lease: row.Lease, LeaseColumn: row.LeaseColumn})
		}
		if row.Problem != "" {
			guard := &guards[len(guards)-1]
			guard.Holes = append(guard.Holes, GuardHole{pgx.Identifier{row.HoleSchema, row.HoleName}, GuardProblem(row.Problem), row.RenamedTo})
		}
	}
	return guards, nil
}

// inOneTx runs fn in db's transaction, or else in one of its own at READ COMMITTED,
// whatever the sessions' default is.
func inOneTx(ctx context.Context, db DBTX, fn func(*lockdb.Queries) error) error {
	if b := outsideTx(db); b != nil {
		return pgx.BeginTxFunc(ctx, b, readCommitted, func(tx pgx.Tx) error { return fn(lockdb.New(tx)) })
	}
	return fn(lockdb.New(db))
}

type beginner interface {
	BeginTx(ctx context.Context, opts pgx.TxOptions) (pgx.Tx, error)
}

// outsideTx is db where it is not in a transaction.
func outsideTx(db DBTX) beginner {
	const idle = 'I'
	switch db := db.(type) {
	case *pgxpool.Pool:
		return db
	case *pgxpool.Conn:
		if db.Conn().PgConn().TxStatus() == idle {
			return db
		}
	case *pgx.Conn:
		if db.PgConn().TxStatus() == idle {
			return db
		}
	}
	return nil
}

func validateGuard(table pgx.Identifier, opts GuardOptions) error {
	if err := validateIdentifier(table...); err != nil {
		return err
	}
	switch {
	case (opts.Lease == "") == (opts.LeaseColumn == ""):
		return fmt.Errorf("%w: set one of Lease and LeaseColumn", ErrInvalidGuard)
	case opts.Lease != "":
		return validateName(opts.Lease)
	default:
		return validateIdentifier(opts.LeaseColumn)
	}
}

// validateIdentifier refuses what the server would cut.
func validateIdentifier(parts ...string) error {
	if len(parts) == 0 {
		return fmt.Errorf("%w: the table has no name", ErrInvalidGuard)
	}
	for _, part := range parts {
		switch {
		case part == "" || !validText(part):
			return fmt.Errorf("%w: a name of SQL is not empty, UTF-8 and without NUL", ErrInvalidGuard)
		case len(part) > maxIdentifierBytes:
			return fmt.Errorf("%w: %q has %d bytes, and PostgreSQL keeps %d", ErrInvalidGuard, part, len(part), maxIdentifierBytes)
		}
	}
	return nil
}

func notEmpty(text string) *string {
	if text == "" {
		return nil
	}
	return &text
}

// translateGuard names what an error means here, where a table that isn't there is the
// application's.
func translateGuard(err error) error {
	switch sqlState(err) {
	case stateUndefinedTable, stateUndefinedColumn, stateInvalidParameter, stateWrongObjectType, stateDatatypeMismatch,
		stateDuplicateObject, stateDependentObjects, stateSyntaxError, stateInvalidName:
		return fmt.Errorf("%w: %w", ErrInvalidGuard, err)
	default:
		return translate(err)
	}
}
