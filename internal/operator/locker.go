package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Locker is an open transaction that locks a lease's row, and so keeps the next holder
// out: a fenced one, mostly.
type Locker struct {
	PID         int    // of its backend; 0 when it is prepared
	GID         string // of a prepared transaction
	User        string // what follows is empty where this role may not see it
	Application string
	Address     string
	State       string        // active, idle in transaction
	WaitEvent   string        // ClientRead while active: it waits for COPY data
	Since       time.Time     // when the transaction began; zero of a prepared one
	Open        time.Duration // for how long it has been open
	InState     time.Duration
}

// Lockers finds the open transactions that lock a name's row. It locks nothing and
// writes nothing, and so can't be exact: what it finds is a transaction that has locked
// a lease, and this row names it or its number.
func Lockers(ctx context.Context, pool *pgxpool.Pool, name string) ([]Locker, error) {
	rows, err := lockdb.New(pool).LeaseLockers(ctx, lockdb.LeaseLockersParams{Name: name})
	if err != nil {
		return nil, fmt.Errorf("find the transactions that lock %q: %w", name, err)
	}
	lockers := make([]Locker, len(rows))
	for i, r := range rows {
		lockers[i] = Locker{
			PID: int(r.Pid), GID: r.Gid, User: r.Username, Application: r.Application, Address: r.Address,
			State: r.State, WaitEvent: r.WaitEvent, Since: r.Since.Time,
			Open: time.Duration(r.OpenUs) * time.Microsecond, InState: time.Duration(r.StateUs) * time.Microsecond,
		}
	}
	return lockers, nil
}

// String tells an operator which one it is.
func (l Locker) String() string {
	who := fmt.Sprintf("backend %d", l.PID)
	if l.GID != "" {
		who = fmt.Sprintf("prepared transaction %q", l.GID)
	}
	var more []string
	for _, part := range []struct{ format, value string }{
		{"user %s", l.User}, {"application %s", l.Application}, {"from %s", l.Address},
	} {
		if part.value != "" {
			more = append(more, fmt.Sprintf(part.format, part.value))
		}
	}
	if len(more) == 0 {
		return who
	}
	return who + " (" + strings.Join(more, ", ") + ")"
}
