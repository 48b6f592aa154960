package operator

import (
	"context"
	"fmt"
	"iter"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/planned"
	"github.com/jackc/pgx/v5/pgxpool"
)

// KeyState is what has become of an idempotency key, in words.
type KeyState string

// The states. A running claim whose lease lapsed is in doubt: nobody has said whether
// its effect happened.
const (
	KeyRunning   KeyState = "running"
	KeyInDoubt   KeyState = "in doubt"
	KeyDone      KeyState = "done"
	KeyTombstone KeyState = "tombstone" // done, and the reply was too large to keep
	KeyReleased  KeyState = "released"
)

// KeyStates are all of them.
var KeyStates = []KeyState{KeyRunning, KeyInDoubt, KeyDone, KeyTombstone, KeyReleased}

// Key is one idempotency key. All times are the database's.
type Key struct {
	idem.Key
	State     KeyState
	Attempt   int64 // its number: how often the key was claimed since it was created
	Status    *int  // of the stored reply
	BodySize  int64 // in bytes, also of one that was not kept
	CreatedAt time.Time
	DoneAt    time.Time // zero before the end
	ExpiresAt time.Time
	LeaseTo   time.Time     // zero without a lease
	Age       time.Duration // since it was created
	Left      time.Duration // until the record expires; negative since it did
	LeaseLeft time.Duration // until a running claim lapses; negative since it did
}

// Now is the database's clock when the key was read.
func (k Key) Now() time.Time { return k.CreatedAt.Add(k.Age) }

// KeyFilter chooses keys; an empty field chooses all.
type KeyFilter struct {
	Operation string
	Scope     idem.Scope
	State     KeyState
}

// Pages begin small, for a list that is cut off soon, and grow for a search.
const (
	firstPage = 100
	mostPage  = 10_000
)

// Keys reads the keys that a filter chooses, in the order of operation, scope and key.
// It reads pages of at most 10,000 rows, one statement each and without a lock, and only
// as many as the caller takes. A state has no index: a rare one reads the whole table,
// once, or all keys of the operation and scope.
func Keys(ctx context.Context, pool *pgxpool.Pool, f KeyFilter) iter.Seq2[Key, error] {
	return func(yield func(Key, error) bool) {
		if f.Operation == "" && f.Scope != "" {
			eachOperation(ctx, pool, f, yield)
			return
		}
		readKeys(ctx, pool, f, yield)
	}
}

// eachOperation looks for a scope in each operation, since the primary key begins with
// the operation.
func eachOperation(ctx context.Context, pool *pgxpool.Pool, f KeyFilter, yield func(Key, error) bool) {
	for {
		operations, err := KeyOperations(ctx, pool, f.Operation, firstPage)
		if err != nil {
			yield(Key{}, err)
			return
		}
		for _, f.Operation = range operations {
			if !readKeys(ctx, pool, f, yield) {
				return
			}
		}
		if len(operations) < firstPage {
			return
		}
	}
}

// readKeys reads page after page, and says whether the caller wants more.
func readKeys(ctx context.Context, pool *pgxpool.Pool, f KeyFilter, yield func(Key, error) bool) bool {
	next := f.page()
	for {
		rows, err := idemdb.New(planned.Pool{Pool: pool}).KeyPage(ctx, next)
		if err != nil {
			yield(Key{}, fmt.Errorf("list idempotency keys: %w", err))
			return false
		}
		for _, r := range rows {
			if !yield(keyOf(r), nil) {
				return false
			}
		}
		if len(rows) < int(next.Most) {
			return true
		}
		last := rows[len(rows)-1]
		next.AfterOperation, next.AfterScope, next.AfterKey = last.Operation, last.Scope, last.Key
		next.Most = min(next.Most*10, mostPage)
	}
}

// page is the first page of what a filter chooses.
func (f KeyFilter) page() idemdb.KeyPageParams {
	p := idemdb.KeyPageParams{
		Operation: f.Operation, Scope: string(f.Scope),
		AfterOperation: f.Operation, AfterScope: string(f.Scope), Most: firstPage,
	}
	switch f.State {
	case KeyRunning, KeyInDoubt:
		p.State, p.Claim = 1, string(f.State)
	case KeyDone:
		p.State = 2
	case KeyTombstone:
		p.State = 3
	case KeyReleased:
		p.State = 4
	}
	return p
}

func keyOf(r idemdb.KeyPageRow) Key {
	return Key{
		Key:   idem.Key{Operation: r.Operation, Scope: idem.Scope(r.Scope), Key: r.Key},
		State: KeyState(r.State), Attempt: r.AttemptNo, Status: status(r.Status), BodySize: r.BodyLen,
		CreatedAt: r.CreatedAt.Time, DoneAt: r.DoneAt.Time, ExpiresAt: r.ExpiresAt.Time, LeaseTo: r.LeaseUntil.Time,
		Age:       time.Duration(r.AgeUs) * time.Microsecond,
		Left:      time.Duration(r.LeftUs) * time.Microsecond,
		LeaseLeft: time.Duration(r.LeaseLeftUs) * time.Microsecond,
	}
}

func status(n *int32) *int {
	if n == nil {
		return nil
	}
	return new(int(*n))
}

// KeyOperations lists at most so many operations that have keys, in their order, from
// behind one on. One statement, which searches an index once for each.
func KeyOperations(ctx context.Context, pool *pgxpool.Pool, after string, most int) ([]string, error) {
	operations, err := idemdb.New(pool).KeyOperations(ctx, idemdb.KeyOperationsParams{After: after, Most: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list operations: %w", err)
	}
	return operations, nil
}

// KeyScopes lists at most so many scopes of an operation, in their order. It costs what
// KeyOperations does.
func KeyScopes(ctx context.Context, pool *pgxpool.Pool, operation string, most int) ([]string, error) {
	scopes, err := idemdb.New(pool).KeyScopes(ctx, idemdb.KeyScopesParams{Operation: operation, Most: int32(most)})
	if err != nil {
		return nil, fmt.Errorf("list scopes of %s: %w", operation, err)
	}
	return scopes, nil
}
