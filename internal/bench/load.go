package bench

import (
	"bytes"
	"context"
	"fmt"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
)

// loadColumns are a table to import into, with the key that a file and its lines give.
const loadColumns = "file integer NOT NULL, line bigint NOT NULL, code text NOT NULL, amount numeric NOT NULL, note text NOT NULL, PRIMARY KEY (file, line)"

// measureImport compares CopyOnce with COPY, each into a new table with the same unique
// index, each in one transaction.
func measureImport(ctx context.Context, e *env, r *Result) (err error) {
	text := e.loadText()
	r.Ratio, err = e.pairs(ctx, func(ctx context.Context, swapped bool) (ours, plain time.Duration, err error) {
		if swapped {
			if plain, err = e.fill(ctx, func(ctx context.Context, table pgx.Identifier) error { return e.copyPlain(ctx, table, text) }); err == nil {
				ours, err = e.fill(ctx, e.copyOnce)
			}
			return ours, plain, err
		}
		if ours, err = e.fill(ctx, e.copyOnce); err == nil {
			plain, err = e.fill(ctx, func(ctx context.Context, table pgx.Identifier) error { return e.copyPlain(ctx, table, text) })
		}
		return ours, plain, err
	})
	return err
}

// measureImportAgain compares CopyOnce of rows that are all there with CopyOnce of them
// when none was.
func measureImportAgain(ctx context.Context, e *env, r *Result) (err error) {
	r.Ratio, err = e.pairs(ctx, func(ctx context.Context, _ bool) (again, first time.Duration, err error) {
		_, err = e.fill(ctx, func(ctx context.Context, table pgx.Identifier) error {
			start := time.Now()
			if err := e.copyOnce(ctx, table); err != nil {
				return err
			}
			first = time.Since(start)
			if err := e.copyOnce(ctx, table); err != nil {
				return err
			}
			again = time.Since(start) - first
			return nil
		})
		return again, first, err
	})
	return err
}

// fill times what fills a new table, which is dropped then.
func (e *env) fill(ctx context.Context, load func(context.Context, pgx.Identifier) error) (took time.Duration, err error) {
	table, err := e.table(ctx, "load", loadColumns)
	if err != nil {
		return 0, err
	}
	start := time.Now()
	if err := load(ctx, table); err != nil {
		return 0, err
	}
	took = time.Since(start)
	_, err = e.admin.Exec(ctx, "DROP TABLE "+table.Sanitize())
	return took, err
}

// copyOnce loads the rows by idem, as a program does that has read them from a file.
func (e *env) copyOnce(ctx context.Context, table pgx.Identifier) error {
	return pgx.BeginFunc(ctx, e.admin, func(tx pgx.Tx) error {
		line := 0
		counts, err := idem.CopyOnce(ctx, tx, idem.Target{
			Table: table, Columns: []string{"file", "line", "code", "amount", "note"}, Key: []string{"file", "line"},
		}, pgx.CopyFromFunc(func() ([]any, error) {
			if line++; line > e.Load {
				return nil, nil
			}
			code, amount := loadRow(line)
			return []any{"1", fmt.Sprint(line), code, amount, note}, nil
		}))
		if err == nil && counts.Inserted+counts.Existed != int64(e.Load) {
			err = fmt.Errorf("CopyOnce counts %+v of %d rows", counts, e.Load)
		}
		return err
	})
}

// copyPlain loads the same rows by COPY, as psql does that reads them from a file.
func (e *env) copyPlain(ctx context.Context, table pgx.Identifier, text []byte) error {
	return pgx.BeginFunc(ctx, e.admin, func(tx pgx.Tx) error {
		_, err := tx.Conn().PgConn().CopyFrom(ctx, bytes.NewReader(text), "COPY "+table.Sanitize()+" FROM STDIN")
		return err
	})
}

// loadText is the rows in COPY's text format.
func (e *env) loadText() []byte {
	var b bytes.Buffer
	for line := 1; line <= e.Load; line++ {
		code, amount := loadRow(line)
		fmt.Fprintf(&b, "1\t%d\t%s\t%s\t%s\n", line, code, amount, note)
	}
	return b.Bytes()
}

// loadRow is what a row holds besides its key.
func loadRow(line int) (code, amount string) {
	return fmt.Sprintf("K%06d", line*7919%1000003), fmt.Sprintf("%d.%02d", line%1000, line%100)
}
