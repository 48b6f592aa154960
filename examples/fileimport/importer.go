package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// batchSize is how many records one transaction takes. What is committed stays
// when the import is killed; the next one goes on after it.
const batchSize = 5000

// tally counts what became of the records of a file, committed ones only.
type tally struct {
	Records   int64 `json:"records"`
	Inserted  int64 `json:"inserted"`
	Existed   int64 `json:"already_there"`
	Duplicate int64 `json:"duplicate_in_file"`
	Changed   int64 `json:"changed"`
	Rejected  int64 `json:"rejected"`
}

func (t *tally) add(o tally) {
	t.Records += o.Records
	t.Inserted += o.Inserted
	t.Existed += o.Existed
	t.Duplicate += o.Duplicate
	t.Changed += o.Changed
	t.Rejected += o.Rejected
}

// check holds the sum: a record that is in none of the counts was lost.
func (t tally) check() error {
	if sum := t.Inserted + t.Existed + t.Duplicate + t.Changed + t.Rejected; sum != t.Records {
		return fmt.Errorf("the counts don't add up: %d records, but %d accounted for: %+v; nothing of this batch was committed", t.Records, sum, t)
	}
	return nil
}

// importer brings one file into a table.
type importer struct {
	pool     *pgxpool.Pool
	source   *source
	progress func(tally) // called after each commit

	table  pgx.Identifier
	fileID int32
	grown  bool // a file of this name was imported with other content
	done   tally
}

// run imports the file in batches, each in a transaction of its own with the
// rows, the rejects and, in the first, the table. When ctx ends, the open batch
// rolls back and the counts are those of what was committed.
func (im *importer) run(ctx context.Context) error {
	p, err := im.source.newPass(ctx)
	if err != nil {
		return err
	}
	for last := false; !last; {
		var b batch
		if b, last, err = readBatch(p); err != nil {
			return firstOf(context.Cause(ctx), err)
		}
		if last && p.sum() != im.source.sum {
			return im.source.changedError()
		}
		if err := im.commit(ctx, b); err != nil {
			return firstOf(context.Cause(ctx), err)
		}
		im.progress(im.done)
	}
	return nil
}

// firstOf is the cause of which err came, if there is one.
func firstOf(cause, err error) error {
	if cause != nil {
		return cause
	}
	return err
}

// batch is the part of a file that one transaction takes.
type batch struct {
	rows    []item
	rejects []item
	tally   tally
}

func readBatch(p *pass) (b batch, last bool, err error) {
	for b.tally.Records < batchSize {
		it, err := p.next()
		if errors.Is(err, io.EOF) {
			return b, true, nil
		}
		if err != nil {
			return b, false, err
		}
		b.tally.Records++
		switch {
		case it.reason != "":
			b.rejects = append(b.rejects, it)
			b.tally.Rejected++
		case it.verdict == duplicate:
			b.tally.Duplicate++
		case it.verdict == changed:
			b.tally.Changed++
		default:
			b.rows = append(b.rows, it)
		}
	}
	return b, false, nil
}

// bounds keep an importer that is stopped in the middle of a transaction from
// blocking the next one for ever: the server ends it after a lease's time. Where a
// wait is longer than that, it ends with an error that says so.
const bounds = `SELECT set_config('idle_in_transaction_session_timeout', '10s', true), set_config('lock_timeout', '20s', true)`

// commit is one transaction at READ COMMITTED: the unique key, not a snapshot,
// keeps two importers apart.
func (im *importer) commit(ctx context.Context, b batch) error {
	table, fileID, done := im.table, im.fileID, im.done
	err := pgx.BeginTxFunc(ctx, im.pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
		if _, err := tx.Exec(ctx, bounds); err != nil {
			return err
		}
		if table == nil {
			if table, fileID, err = im.register(ctx, tx); err != nil {
				return err
			}
		}
		counts, err := im.copyRows(ctx, tx, table, fileID, b.rows)
		if err != nil {
			return err
		}
		if err := saveRejects(ctx, tx, fileID, b.rejects); err != nil {
			return err
		}
		b.tally.Inserted, b.tally.Existed = counts.Inserted, counts.Existed
		b.tally.Duplicate += counts.Duplicate
		b.tally.Changed += counts.Changed
		done.add(b.tally)
		return errors.Join(done.check(), im.source.unchanged())
	})
	if err == nil {
		im.table, im.fileID, im.done = table, fileID, done
	}
	return err
}

// register makes the file known by its content, and its table ready.
func (im *importer) register(ctx context.Context, tx pgx.Tx) (pgx.Identifier, int32, error) {
	table, err := chooseTable(ctx, tx, im.source)
	if err != nil {
		return nil, 0, err
	}
	if err := prepareTable(ctx, tx, table, im.source); err != nil {
		return nil, 0, err
	}
	var id int32
	err = tx.QueryRow(ctx, `SELECT id FROM gatepost.imports WHERE sha256 = $1 AND table_schema = $2 AND table_name = $3`,
		im.source.sum[:], table[0], table[1]).Scan(&id)
	if !errors.Is(err, pgx.ErrNoRows) {
		return table, id, err
	}
	if im.grown, err = otherContent(ctx, tx, table, im.source); err != nil {
		return nil, 0, err
	}
	id, _, err = idem.InsertOnce(ctx, tx, idem.Insert{
		Table:     pgx.Identifier{"gatepost", "imports"},
		Columns:   []string{"sha256", "table_schema", "table_name", "key", "file", "bytes"},
		Values:    []any{im.source.sum[:], table[0], table[1], im.source.opts.key.String(), im.source.path, im.source.size},
		Key:       []string{"sha256", "table_schema", "table_name"},
		Returning: []string{"id"},
	}, pgx.RowTo[int32])
	return table, id, err
}

func (im *importer) copyRows(ctx context.Context, tx pgx.Tx, table pgx.Identifier, fileID int32, rows []item) (idem.Counts, error) {
	target := idem.Target{Table: table, Key: im.source.opts.key.names()}
	for _, c := range im.source.opts.key.extra() {
		target.Columns = append(target.Columns, c.name)
	}
	target.Columns = append(target.Columns, im.source.columns...)
	if im.source.opts.key.kind == natural {
		target.Compare = im.source.columns
	}
	values := &rowValues{rows: rows, fileID: fileID, fileLine: im.source.opts.key.kind == fileLine}
	counts, err := idem.CopyOnce(ctx, tx, target, values)
	if err != nil {
		return counts, values.locate(im.source.path, table, err)
	}
	if counts.Changed > 0 && !im.source.opts.skipChanged {
		return counts, fmt.Errorf("%s: line %d: its key is in %s with other content (%d such in this batch); --on-change skip keeps what is there",
			im.source.path, rows[counts.FirstChanged-1].line, table.Sanitize(), counts.Changed)
	}
	return counts, nil
}

// rowValues feeds items to COPY.
type rowValues struct {
	rows     []item
	fileID   int32
	fileLine bool
	next     int
	bad      error
}

func (r *rowValues) Next() bool { r.next++; return r.next <= len(r.rows) }
func (r *rowValues) Err() error { return r.bad }

func (r *rowValues) Values() ([]any, error) {
	it := r.rows[r.next-1]
	values := make([]any, 0, 1+len(it.key)+len(it.record.Fields))
	if r.fileLine {
		values = append(values, r.fileID)
	}
	values = append(values, it.key...)
	for _, f := range it.record.Fields {
		if isNull(f) {
			values = append(values, nil)
		} else {
			values = append(values, f.Value)
		}
	}
	return values, nil
}

// copyPlace is where COPY says that it is, behind the table's name: the row of the batch,
// and the column.
var copyPlace = regexp.MustCompile(`^\D*(\d+)(?:, \S+ ([^:]+))?`)

// locate adds the line of a record that the database refused, if that is known.
func (r *rowValues) locate(path string, table pgx.Identifier, err error) error {
	pgErr, ok := errors.AsType[*pgconn.PgError](err)
	if !ok {
		return fmt.Errorf("%s: %w", path, err)
	}
	_, where, _ := strings.Cut(pgErr.Where, "COPY "+table[1]+", ")
	place := copyPlace.FindStringSubmatch(where)
	if place == nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	row, _ := strconv.Atoi(place[1])
	if row < 1 || row > len(r.rows) {
		return fmt.Errorf("%s: %w", path, err)
	}
	line := fmt.Sprintf("line %d", r.rows[row-1].line)
	if place[2] != "" {
		line += ", column " + place[2]
	}
	return fmt.Errorf("%s: %s: %w", path, line, pgErr)
}

// saveRejects keeps bad records with their line and the reason. A second import
// of the same file finds them there.
func saveRejects(ctx context.Context, tx pgx.Tx, fileID int32, rejects []item) error {
	if len(rejects) == 0 {
		return nil
	}
	var lines []int64
	var raws [][]byte
	var reasons []string
	for _, it := range rejects {
		lines, raws, reasons = append(lines, it.line), append(raws, it.raw), append(reasons, it.reason)
	}
	_, err := tx.Exec(ctx, `INSERT INTO gatepost.import_rejects (import_id, line, raw, reason)
		SELECT $1, unnest($2::bigint[]), unnest($3::bytea[]), unnest($4::text[])
		ON CONFLICT (import_id, line) DO NOTHING`, fileID, lines, raws, reasons)
	return err
}
