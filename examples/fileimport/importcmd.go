package main

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/spf13/cobra"
)

// leaseTTL is short, so that the lease of an importer that was killed is soon
// over; a live one renews it.
const leaseTTL = 10 * time.Second

// importOptions are the flags of "fileimport import".
type importOptions struct {
	url         string
	table       pgx.Identifier // nil: chosen by the file
	key         keySpec
	delimiter   byte
	oneColumn   bool // said to be CSV, whatever the header looks like
	maxRejects  int64
	skipChanged bool
	wait        time.Duration
	json        bool
}

func importCommand() *cobra.Command {
	var opts importOptions
	var table, key, delimiter, onChange string
	cmd := &cobra.Command{
		Use:   "import FILE.csv...",
		Short: "Import CSV files, every record once",
		Long: `Import CSV files into a table, every record once: a second import of the same
file inserts nothing, also when the file has another name, when the first was
killed in the middle, and when both run at the same moment.

The table is created from the header, with text columns, when it is missing. A
file that is damaged is refused before anything is written.

What makes a record the same record, --key:
  file-line           the file's content and the line (the default): a file that
                      was repaired or has grown is a new file, with new records
  content             the fields, and how many equal records came before them in
                      the file: for exports that overlap
  natural:COLUMN,...  columns that are a key already`,
		Example: `  fileimport import orders.csv --database-url postgres://localhost/shop
  fileimport import orders.csv --table shop.orders --key natural:order_id`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) == 0 {
				return usageError(errors.New("which file? fileimport import FILE.csv"))
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, paths []string) error {
			if err := opts.parse(cmd, table, key, delimiter, onChange); err != nil {
				return usageError(err)
			}
			return importFiles(cmd, paths, opts)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&opts.url, "database-url", "", "the database; default $DATABASE_URL when set, else a temporary PostgreSQL")
	flags.StringVar(&table, "table", "", "NAME or SCHEMA.NAME; default the table this content was imported into before, else the file's name")
	flags.StringVar(&key, "key", "file-line", "file-line, content or natural:COLUMN,COLUMN")
	flags.StringVar(&onChange, "on-change", "error", "when a natural key is in the table, or came before in the file, with other content: error or skip")
	flags.StringVar(&delimiter, "delimiter", ",", "one ASCII character, or tab")
	flags.BoolVar(&opts.oneColumn, "one-column", false, "the file has one column, though its first line doesn't look like a column's name")
	flags.Int64Var(&opts.maxRejects, "max-rejects", 0, "set up to so many bad records aside instead of refusing the file")
	flags.DurationVar(&opts.wait, "wait", leaseTTL+leaseTTL/2, "how long to wait while another imports the same file; 0 ends at once. The default outlasts an importer that was killed")
	flags.BoolVar(&opts.json, "json", false, "print the counts as JSON, a line a file")
	return cmd
}

func (o *importOptions) parse(cmd *cobra.Command, table, key, delimiter, onChange string) (err error) {
	if o.key, err = parseKey(key); err != nil {
		return err
	}
	if cmd.Flags().Changed("table") {
		if o.table, err = parseTable(table); err != nil {
			return err
		}
	}
	switch {
	case delimiter == "tab" || delimiter == `\t`:
		o.delimiter = '\t'
	case len(delimiter) == 1:
		o.delimiter = delimiter[0]
	default:
		return fmt.Errorf("--delimiter %q is not one ASCII character", delimiter)
	}
	if onChange != "error" && onChange != "skip" {
		return fmt.Errorf("--on-change %q is not known; use error or skip", onChange)
	}
	o.skipChanged = onChange == "skip"
	if o.maxRejects < 0 || o.wait < 0 {
		return errors.New("--max-rejects and --wait can't be negative")
	}
	return nil
}

// importFiles reads all files through before it writes anything, then imports
// one after the other.
func importFiles(cmd *cobra.Command, paths []string, opts importOptions) error {
	ctx := cmd.Context()
	rep := newReport(cmd.OutOrStdout(), cmd.ErrOrStderr(), opts.json)
	defer rep.clear()
	var sources []*source
	defer func() {
		for _, s := range sources {
			s.close()
		}
	}()
	for _, path := range paths {
		s, err := openSource(ctx, path, opts)
		if err != nil {
			return err
		}
		sources = append(sources, s)
	}
	pool, done, err := openDatabase(ctx, opts.url, rep.notes)
	if err != nil {
		return err
	}
	defer done()
	client, err := pglock.New(pool, pglock.Config{TTL: leaseTTL})
	if err != nil {
		return err
	}
	defer func() { _ = client.Close(context.WithoutCancel(ctx)) }()
	for _, s := range sources {
		if err := importFile(ctx, pool, client, s, rep); err != nil {
			return err
		}
	}
	return nil
}

// importFile imports one file under a lease on its content: a copy under another
// name is the same work.
func importFile(ctx context.Context, pool *pgxpool.Pool, client *pglock.Client, s *source, rep report) error {
	if s.empty() {
		rep.note("%s is empty: no header, nothing to import", s.path)
		return rep.result(s, pgx.Identifier{tableName(s.path)}, tally{})
	}
	for _, n := range s.notes {
		rep.note("%s: %s", s.path, n)
	}
	im := &importer{pool: pool, source: s, progress: rep.progress(s)}
	work := func(ctx context.Context, _ *pglock.Lease) error { return im.run(ctx) }
	lease := "fileimport/" + hex.EncodeToString(s.sum[:16])

	err := client.Do(ctx, lease, &pglock.AcquireOptions{Wait: pglock.NoWait}, work)
	if held, ok := errors.AsType[*pglock.HeldError](err); ok && s.opts.wait > 0 {
		rep.note("%s is being imported by %s since %s; waiting for up to %s",
			s.path, held.Holder, held.Since.Local().Format(time.TimeOnly), s.opts.wait)
		err = client.Do(ctx, lease, &pglock.AcquireOptions{Wait: s.opts.wait}, work)
	}
	if err != nil && ctx.Err() != nil && im.done.Records == 0 {
		return fmt.Errorf("%w; no record of %s is known to be committed; start again to import it", context.Cause(ctx), s.path)
	}
	if held, ok := errors.AsType[*pglock.HeldError](err); ok {
		return fmt.Errorf("%s is being imported by %s since %s; nothing was done: %w",
			s.path, held.Holder, held.Since.Local().Format(time.TimeOnly), held)
	}
	if err != nil {
		if im.done.Records > 0 {
			rep.note("%d of %d records are known to be committed; start again to import the others", im.done.Records, s.counts.Records)
		}
		return err
	}
	if im.grown {
		rep.note("%s: a file of this name with other content was imported before; by --key file-line all its records are new. For a file that was repaired or has grown, use --key content",
			s.path)
	}
	return rep.result(s, im.table, im.done)
}
