package incident

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// urlVariable hands the database to an importer: a command line can be read
// by everybody on the machine, an environment can't.
const urlVariable = "GATEPOST_DEMO_DATABASE_URL"

// fileName is the file that is imported. It is made up, record by record.
const fileName = "orders.csv"

func content(line int64) string { return fmt.Sprintf("order %d", line) }

// What an importer reports, in this order.
const (
	eventBegun     = "begun"     // it goes on behind Last; Token
	eventCommitted = "committed" // its first batch: First to Last; waits for a line
	eventRenewed   = "renewed"   // after that line, with a guard to be renewed by hand
	eventRefused   = "refused"   // its second batch; Token, Current. The end
	eventDone      = "done"      // the end
)

// event is a line of JSON that an importer writes. Inserted and Existed are
// totals of what it committed.
type event struct {
	Kind     string `json:"kind"`
	Token    int64  `json:"token,omitempty"`
	Current  int64  `json:"current,omitempty"`
	First    int64  `json:"first,omitempty"`
	Last     int64  `json:"last,omitempty"`
	Inserted int64  `json:"inserted,omitempty"`
	Existed  int64  `json:"existed,omitempty"`
}

// importing is what the importers of all acts have in common.
type importing struct {
	who            string
	scratch        scratch
	ttl            time.Duration
	records, batch int64
}

// importerCommand is the process that the demo starts twice an act.
func (p Program) importerCommand() *cobra.Command {
	var im importing
	var guard, schema string
	cmd := &cobra.Command{
		Use:    "demo-importer",
		Short:  "One of the importers of the demo",
		Hidden: true,
		Args:   cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !scratchName.MatchString(schema) || im.batch < 1 {
				return cli.UsageError{Err: fmt.Errorf("this command is the demo's own; use %s demo", p.Name)}
			}
			im.scratch = scratch(schema)
			return im.start(cmd.Context(), guard, cmd.InOrStdin(), cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&guard, "guard", "", "")
	flags.StringVar(&schema, "schema", "", "")
	flags.StringVar(&im.who, "who", "", "")
	flags.DurationVar(&im.ttl, "ttl", 0, "")
	flags.Int64Var(&im.records, "records", 0, "")
	flags.Int64Var(&im.batch, "batch", 0, "")
	return cmd
}

func (im importing) start(ctx context.Context, kind string, in io.Reader, out io.Writer) (err error) {
	pool, err := cli.Connect(ctx, os.Getenv(urlVariable))
	if err != nil {
		return err
	}
	defer pool.Close()
	guard, err := newGuard(kind, im, pool)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, guard.end(context.WithoutCancel(ctx))) }()
	run := importerRun{importing: im, guard: guard, in: bufio.NewReader(in), out: json.NewEncoder(out)}
	return run.run(ctx)
}

// importerRun is one import, from where the guard says to the end of the file.
type importerRun struct {
	importing
	guard guard
	in    *bufio.Reader
	out   *json.Encoder
	total event
}

func (r *importerRun) run(ctx context.Context) error {
	begun, err := r.guard.begin(ctx)
	if err != nil {
		return err
	}
	begun.Kind = eventBegun
	if err := r.out.Encode(begun); err != nil {
		return err
	}
	for done := begun.Last; done < r.records; done = r.total.Last {
		if done > begun.Last {
			if err := r.beforeBatch(ctx, done == begun.Last+r.batch); err != nil {
				return err
			}
		}
		err := r.importBatch(ctx, done+1, min(done+r.batch, r.records))
		if refused, ok := errors.AsType[*pglock.FencedError](err); ok {
			return r.refused(refused, done)
		}
		if err != nil {
			return err
		}
	}
	return r.report(eventDone)
}

// beforeBatch renews the lease. Before the second batch it waits for the word of
// the demo, so that an importer is stopped exactly there.
func (r *importerRun) beforeBatch(ctx context.Context, second bool) error {
	if second {
		if err := r.report(eventCommitted); err != nil {
			return err
		}
		if _, err := r.in.ReadString('\n'); err != nil {
			return fmt.Errorf("the demo has ended: %w", err)
		}
	}
	guard, ok := r.guard.(renewer)
	if !ok {
		return nil
	}
	if err := guard.renew(ctx); err != nil || !second {
		return err
	}
	return r.report(eventRenewed)
}

func (r *importerRun) importBatch(ctx context.Context, first, last int64) error {
	inserted, existed, err := r.guard.write(ctx, first, last)
	if err != nil {
		return err
	}
	r.total.Inserted += inserted
	r.total.Existed += existed
	r.total.First, r.total.Last = first, last
	return nil
}

func (r *importerRun) refused(err *pglock.FencedError, done int64) error {
	r.total.First, r.total.Last = done+1, min(done+r.batch, r.records)
	r.total.Token, r.total.Current = err.Token, err.Current
	return r.report(eventRefused)
}

func (r *importerRun) report(kind string) error {
	r.total.Kind = kind
	return r.out.Encode(r.total)
}

// insert writes records without a key, and the new position with them.
func (im importing) insert(ctx context.Context, tx pgx.Tx, first, last int64) (int64, error) {
	var lines []int64
	var contents []string
	for line := first; line <= last; line++ {
		lines, contents = append(lines, line), append(contents, content(line))
	}
	tag, err := tx.Exec(ctx, im.scratch.sql(`INSERT INTO demo.orders (file, line, content, importer)
		SELECT $1, unnest($2::bigint[]), unnest($3::text[]), $4`), fileName, lines, contents, im.who)
	if err != nil {
		return 0, err
	}
	_, err = tx.Exec(ctx, im.scratch.sql(`UPDATE demo.position SET line = $1`), last)
	return tag.RowsAffected(), err
}

// position is how far the file has been imported.
func (im importing) position(ctx context.Context, pool *pgxpool.Pool) (e event, err error) {
	err = pool.QueryRow(ctx, im.scratch.sql(`SELECT line FROM demo.position`)).Scan(&e.Last)
	return e, err
}
