package operator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Release is an acquisition that an operator ends.
type Release struct {
	Name  string
	Token int64
	// By says who does it and Reason why; both are left in the row.
	By, Reason string
}

// Released is what became of it.
type Released struct {
	Holder string        // who had it
	Role   string        // as whom the database knows the operator
	At     time.Time     // when, by the database's clock
	Held   time.Duration // for how long the holder had it
	Left   time.Duration // until it would have expired; negative when it had
}

// ErrNotCurrent says that the token is not that of a name's holder; nothing is changed.
var ErrNotCurrent = errors.New("the token is not that of a current holder")

// Do frees the name, wakes whoever waits for it, and leaves in the row's data who did it,
// until the next acquisition. The row and its token stay; the holder learns of it with its
// next renewal or fence. Two transactions, READ COMMITTED; it waits for a lock on the row
// for 5 s at most, and never for a fenced transaction. Errors: ErrNotCurrent.
func (r Release) Do(ctx context.Context, pool *pgxpool.Pool) (Released, error) {
	var row lockdb.LeaseReleaseByTokenRow
	err := readCommitted(ctx, pool, func(q *lockdb.Queries) (err error) {
		row, err = q.LeaseReleaseByToken(ctx, lockdb.LeaseReleaseByTokenParams{
			Name: r.Name, Token: r.Token, Operator: r.By, Reason: r.Reason,
		})
		return err
	})
	if errors.Is(err, pgx.ErrNoRows) {
		return Released{}, ErrNotCurrent
	}
	if err != nil {
		return Released{}, fmt.Errorf("release %q: %w", r.Name, err)
	}
	// After the commit: whoever is woken finds the name free, and a NOTIFY serialises commits.
	err = readCommitted(ctx, pool, func(q *lockdb.Queries) error {
		return q.WaiterWake(ctx, lockdb.WaiterWakeParams{Name: r.Name})
	})
	if err != nil {
		err = fmt.Errorf("%q is released, but nobody was woken, whoever waits finds it by polling: %w", r.Name, err)
	}
	return Released{
		Holder: row.Holder, Role: row.Role, At: row.At.Time,
		Held: time.Duration(row.HeldUs) * time.Microsecond, Left: time.Duration(row.LeftUs) * time.Microsecond,
	}, err
}

func readCommitted(ctx context.Context, pool *pgxpool.Pool, fn func(*lockdb.Queries) error) error {
	opts := pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadWrite}
	return pgx.BeginTxFunc(ctx, pool, opts, func(tx pgx.Tx) error { return fn(lockdb.New(tx)) })
}

// Ending says what became of a backend that was to be ended.
type Ending string

// What Terminate finds.
const (
	EndingDone    Ending = "ended"
	EndingPending Ending = "told to end" // and has not yet
	EndingNone    Ending = "already out of that transaction"
	EndingHidden  Ending = "not shown to this role" // which then may not end it either
	EndingByHand  Ending = "prepared"               // no backend's any more: COMMIT or ROLLBACK PREPARED
)

// terminateWithin is how long Terminate waits for a backend's end.
const terminateWithin = 5 * time.Second

// Terminate ends the backend of a locker, if its transaction is still one that began
// before a moment: of the holder that was released then, and not of the next one. It needs
// the backend's role, or pg_signal_backend; without, the error is PostgreSQL's
// insufficient_privilege.
func (l Locker) Terminate(ctx context.Context, pool *pgxpool.Pool, before time.Time) (Ending, error) {
	switch {
	case l.GID != "":
		return EndingByHand, nil
	case l.State == "":
		return EndingHidden, nil
	}
	ended, err := lockdb.New(pool).LockerTerminate(ctx, lockdb.LockerTerminateParams{
		Pid: int32(l.PID), WaitMs: terminateWithin.Milliseconds(), Before: pgtype.Timestamptz{Time: before, Valid: true},
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return EndingNone, nil
	case err != nil:
		return "", fmt.Errorf("end %s: %w", l, err)
	case !ended:
		return EndingPending, nil
	default:
		return EndingDone, nil
	}
}
