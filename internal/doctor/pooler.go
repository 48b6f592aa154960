package doctor

import (
	"context"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/jackc/pgx/v5"
)

// after looks for a pooler in between, outside the transaction. A server tells a new
// connection its process id, and a pooler makes one up.
func (e *examination) after(ctx context.Context) error {
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

// shares says that our connection's server process, idle now, serves another
// connection, or that we are served by another one while it does so.
func (e *examination) shares(ctx context.Context, pid int32) bool {
	ctx, cancel := context.WithTimeout(ctx, e.opts.Timeout) // a full pool makes it wait
	defer cancel()
	other, err := pgx.ConnectConfig(ctx, e.cfg)
	if err != nil {
		return false
	}
	defer func() { _ = other.Close(context.WithoutCancel(ctx)) }()
	tx, err := other.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return false
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	theirs, err := doctordb.New(tx).ServerBackend(ctx)
	if err != nil {
		return false
	}
	if theirs == pid {
		return true
	}
	ours, err := doctordb.New(e.conn).ServerBackend(ctx)
	return err == nil && ours != pid
}
