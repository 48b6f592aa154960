package pglock

import (
	"context"
	"errors"
	"time"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// errLate marks a first grant of a name that waited for another one.
var errLate = errors.New("pglock: granted late")

// grant takes the name for a nonce, or says in a *HeldError who has it. A name whose
// row is there takes one statement that is a transaction of its own; a busy one
// takes a second, which locks nothing; the first time that a name is taken takes
// three.
func (c *Client) grant(ctx context.Context, conn *pgx.Conn, cl claim, seq Sequencer) (token int64, err error) {
	p := lockdb.LeaseTakeParams{
		Name: cl.name, Nonce: seq.nonce, Holder: c.cfg.Holder, TtlUs: cl.ttl.Microseconds(), Data: cl.data,
	}
	for {
		explicit := c.explicit.Load()
		token, err = c.short(conn).LeaseTake(ctx, p)
		switch state := sqlState(err); {
		case state == stateReadOnly && !explicit:
			c.explicit.Store(true)
			continue
		case state == stateNotSupported: // a standby, which says nothing of the sessions
			c.explicit.Store(false)
		}
		if !errors.Is(err, pgx.ErrNoRows) {
			return token, err
		}
		row, err := lockdb.New(conn).LeaseLook(ctx, lockdb.LeaseLookParams{Name: cl.name, Holder: c.cfg.Holder})
		switch {
		case errors.Is(err, pgx.ErrNoRows):
			return c.grantFirst(ctx, conn, cl, seq)
		case err != nil:
			return 0, err
		case !row.ReadCommitted && !explicit:
			c.explicit.Store(true)
		default:
			return 0, heldBy(cl.name, row)
		}
	}
}

// short runs the next query, one that does no harm outside READ COMMITTED, as a
// transaction of its own: bare, which saves BEGIN and COMMIT, as long as the
// sessions are not known to be something else.
func (c *Client) short(conn *pgx.Conn) *lockdb.Queries {
	if c.explicit.Load() {
		return inShortTx(conn)
	}
	return lockdb.New(conn)
}

// grantFirst makes the row of a name. The clock is read before the wait for another
// first INSERT: when that took a part of the TTL, the grant is errLate. The next try
// finds the row and takes it by a clock that is read after its lock.
func (c *Client) grantFirst(ctx context.Context, conn *pgx.Conn, cl claim, seq Sequencer) (token int64, err error) {
	row, err := inShortTx(conn).LeaseInsert(ctx, lockdb.LeaseInsertParams{
		Name: cl.name, Nonce: seq.nonce, Holder: c.cfg.Holder, TtlUs: cl.ttl.Microseconds(), Data: cl.data,
	})
	switch {
	case errors.Is(err, pgx.ErrNoRows), sqlState(err) == stateLockNotAvailable: // another was first
		return 0, &HeldError{Name: cl.name, Fenced: true}
	case err != nil:
		return 0, err
	case time.Duration(row.WaitedUs)*time.Microsecond > cl.margin:
		return row.Token, errLate
	default:
		return row.Token, nil
	}
}

func heldBy(name string, row lockdb.LeaseLookRow) *HeldError {
	held := &HeldError{
		Name: name, Holder: row.Holder, Token: row.Token,
		Since: row.AcquiredAt.Time, ExpiresAt: row.ExpiresAt.Time, Fenced: !row.Held,
	}
	if row.Held {
		held.RetryAfter = max(0, time.Duration(row.LeftUs)*time.Microsecond)
	}
	return held
}
