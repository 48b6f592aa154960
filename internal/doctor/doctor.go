// Package doctor looks at a database for what weakens Gatepost's promises: a table
// that was changed, a server that loses commits, a transaction that holds a lease's
// next holder off, a role that lacks a privilege.
//
// It only reads, in one READ ONLY transaction with a statement_timeout of its own, and
// reads no nonce; its search_path is the system's alone. It works with a role that may only read; what that role can't see is
// told, and never taken for healthy. What it finds is history when it arrives.
package doctor

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/gen/doctordb"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// Options say how to look. The zero value works.
type Options struct {
	// Role is the application's, whose privileges are looked at. Defaults to none.
	Role string

	// FenceOnly says that Role only fences, with sequencers that it was handed.
	FenceOnly bool

	// Timeout bounds each statement. Defaults to 5 s.
	Timeout time.Duration

	// FenceTimeout is what the clients have as Config.FenceTimeout: a fenced
	// transaction that is open for longer is told. Defaults to 30 s.
	FenceTimeout time.Duration

	// Limits say from where on something is told.
	Limits Limits

	now func() time.Time // this machine's clock; time.Now when nil
}

func (o Options) withDefaults() Options {
	if o.Timeout == 0 {
		o.Timeout = 5 * time.Second
	}
	if o.FenceTimeout == 0 {
		o.FenceTimeout = 30 * time.Second
	}
	o.Limits = o.Limits.withDefaults()
	return o
}

// Examine looks at the database that a configuration connects to, over a connection of
// its own. A check that fails is told in the Report, and the others go on. The error is
// for what ends them all: no connection, or one that was lost.
func Examine(ctx context.Context, cfg *pgx.ConnConfig, opts Options) (*Report, error) {
	cfg = cfg.Copy()
	cfg.DefaultQueryExecMode = pgx.QueryExecModeExec // works through any pooler
	cfg.RuntimeParams["datestyle"] = "ISO"           // in that mode pgx reads no other; a pooler knows it
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		return nil, err
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	e := &examination{conn: conn, cfg: cfg, opts: opts.withDefaults(), report: &Report{}}
	if err := e.run(ctx); err != nil {
		return nil, fmt.Errorf("look at the database: %w", err)
	}
	return e.report, nil
}

// examination is one look at a database.
type examination struct {
	conn   *pgx.Conn
	cfg    *pgx.ConnConfig
	opts   Options
	report *Report

	versionNum int32
	readsStats bool
	tables     map[string]doctordb.TableListRow
	upToDate   bool // the tables should be those of this program
}

// run makes the checks in a READ ONLY transaction, and after it those that look at how
// statements travel.
func (e *examination) run(ctx context.Context) error {
	tx, err := e.conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := e.begin(ctx, tx); err != nil {
		return err
	}
	for _, c := range checks {
		if err := e.check(ctx, tx, c); err != nil {
			return err
		}
	}
	if err := tx.Rollback(ctx); err != nil {
		return err
	}
	return e.after(ctx)
}

// begin bounds the transaction's statements and reads what all checks need.
func (e *examination) begin(ctx context.Context, tx pgx.Tx) error {
	ctx, cancel := context.WithTimeout(ctx, patience*e.opts.Timeout)
	defer cancel()
	// The planner takes the sets of transactions for large, and compiling costs seconds. The
	// path first: an operator in somebody's schema must not answer for the system's.
	if _, err := tx.Exec(ctx, `SELECT pg_catalog.set_config('search_path', 'pg_catalog, pg_temp', true)`); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `SELECT set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), set_config('jit', 'off', true)`,
		fmt.Sprint(max(1, e.opts.Timeout.Milliseconds())), fmt.Sprint(max(1, e.lockTimeout().Milliseconds())))
	if err != nil {
		return err
	}
	q := doctordb.New(tx)
	about, err := q.ServerAbout(ctx)
	if err != nil {
		return err
	}
	e.versionNum, e.readsStats = about.VersionNum, about.ReadsStats
	e.report.Version, e.report.Database, e.report.Role = about.Version, about.Database, about.Role
	e.report.Standby = about.Recovering
	rows, err := q.TableList(ctx)
	if err != nil {
		return err
	}
	e.tables = make(map[string]doctordb.TableListRow, len(rows))
	for _, row := range rows {
		e.tables[row.Name] = row
	}
	return nil
}

// lockTimeout is shorter than a statement's: the one that ends first says what it was.
func (e *examination) lockTimeout() time.Duration { return e.opts.Timeout / 2 }

// patience is how many timeouts a check may take before the connection counts as lost:
// none has more statements.
const patience = 4

// check makes one check. Its statements are in a savepoint, so that one that fails
// leaves the transaction to the next.
func (e *examination) check(ctx context.Context, tx pgx.Tx, c check) error {
	r := Result{Check: c.id, Looks: c.looks, Skipped: e.skips(c)}
	if r.Skipped == "" {
		// A server that doesn't answer knows no statement_timeout.
		ctx, cancel := context.WithTimeout(ctx, patience*e.opts.Timeout)
		defer cancel()
		err := pgx.BeginFunc(ctx, tx, func(tx pgx.Tx) error {
			return c.run(ctx, &visit{examination: e, db: tx, q: doctordb.New(tx), result: &r})
		})
		if err != nil && e.conn.IsClosed() {
			return err
		}
		e.settle(&r, c, err)
	}
	e.report.Results = append(e.report.Results, r)
	return nil
}

// skips says why a check can't be made here, or nothing.
func (e *examination) skips(c check) string {
	if c.primary && e.report.Standby {
		return "this server is a standby: ask the primary"
	}
	if c.role && e.opts.Role == "" {
		return "no role was named"
	}
	if c.inventory && !e.upToDate {
		return "the schema is of another version"
	}
	for _, name := range c.reads {
		if !e.plain(name) {
			return "gatepost." + name + " is missing"
		}
	}
	return ""
}

// settle puts what a check ended with into its result.
func (e *examination) settle(r *Result, c check, err error) {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	switch {
	case err == nil:
	case ok && pgErr.Code == "42501": // insufficient_privilege
		r.Unseen = append(r.Unseen, Unseen{pgErr.Message, e.grants(c)})
	case ok && pgErr.Code == "57014": // query_canceled
		r.Failed = fmt.Sprintf("it took longer than %s: give it more time with --timeout", e.opts.Timeout)
	case ok && pgErr.Code == "55P03": // lock_not_available
		r.Failed = fmt.Sprintf("a table was locked for longer than %s, by ALTER TABLE or VACUUM FULL perhaps: look again later", e.lockTimeout())
	default:
		r.Failed = err.Error()
	}
}

// grants are the statements that let this role see what a check reads, and no nonce.
func (e *examination) grants(c check) []string {
	role := ident(e.report.Role)
	lines := []string{"GRANT USAGE ON SCHEMA gatepost TO " + role + ";"}
	tables := c.reads
	if c.asks != "" {
		tables = append(tables, c.asks)
	}
	for _, name := range tables {
		lines = append(lines, "GRANT SELECT "+readable[name]+"ON gatepost."+name+" TO "+role+";")
	}
	return lines
}

// visit is one check at work.
type visit struct {
	*examination
	db     pgx.Tx
	q      *doctordb.Queries
	result *Result
}

func (v *visit) weakens(object, text string, remedy ...string) {
	v.result.Findings = append(v.result.Findings, Finding{Weakens, object, text, remedy})
}

func (v *visit) note(object, text string, remedy ...string) {
	v.result.Findings = append(v.result.Findings, Finding{Note, object, text, remedy})
}

// unseen tells that a part could not be looked at, and which grants would help.
func (v *visit) unseen(text string, grants ...string) {
	v.result.Unseen = append(v.result.Unseen, Unseen{text, grants})
}

// unseenStats tells what pg_read_all_stats would show, to a role that hasn't got it.
func (v *visit) unseenStats(what string) {
	if !v.readsStats {
		v.unseen(what+" can't be seen by this role", "GRANT pg_read_all_stats TO "+ident(v.report.Role)+";")
	}
}

// latest is the version of the schema that this program is for.
func latest() int64 { return migrations.Latest() }
