package doctor

import (
	"context"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

// after looks for a pooler in between, outside the transaction. A server tells a new
// connection its process id, and a pooler makes one up.
func (e *examination) after(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience*e.opts.Timeout)
	defer cancel()
	r := Result{Check: "pooler", Looks: "whether a pooler is in between"}
	defer func() { e.report.Results = append(e.report.Results, r) }()
	pid, err := doctordb.New(e.conn).ServerBackend(ctx)
	if err != nil {
		return err
	}
	if uint32(pid) == e.conn.PgConn().PID() {
		return nil
	}
	v := &visit{examination: e, result: &r}
	if e.shares(ctx, pid) {
		v.note("the connection", "A pooler in transaction mode is in between: LISTEN through it hears nothing, so that waiters poll, "+
			"and migrations are not safe through it.",
			"-- give pglock a direct pool as Config.Control, or set Config.DisableNotify; migrate over a direct connection")
		return nil
	}
	v.note("the connection", "A pooler is in between, in session mode as it seems: each client keeps up to 3 of its connections "+
		"for heartbeats and LISTEN.", "-- count them in its pool size, or give pglock a direct pool as Config.Control")
	return nil
}

// looks is how often our connection is looked at for another server process: a pooler
// that takes turns shows one at the second look.
const looks = 4

// shares says that our connection's server process, idle now, serves another
// connection, or that we are served by another process after that.
func (e *examination) shares(ctx context.Context, pid int32) bool {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Timeout) // a full pool makes it wait
	defer cancel()
	theirs, err := e.otherBackend(ctx)
	if err != nil || theirs == pid {
		return err == nil
	}
	for range looks {
		ours, err := doctordb.New(e.conn).ServerBackend(ctx)
		if err != nil || ours != pid {
			return err == nil
		}
	}
	return false
}

// otherBackend is the server process of another connection.
func (e *examination) otherBackend(ctx context.Context) (pid int32, err error) {
	other, err := pgx.ConnectConfig(ctx, e.cfg)
	if err != nil {
		return 0, err
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	return doctordb.New(other).ServerBackend(ctx)
}
