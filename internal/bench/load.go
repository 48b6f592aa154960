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
func measureImport(ctx context.Context, e *env, r *Result) error {
	return e.compareImport(ctx, r, 0)
}

// measureImportStaged is the same where CopyOnce finds a row there already, so that all
// of them go through its staging table.
func measureImportStaged(ctx context.Context, e *env, r *Result) error {
	return e.compareImport(ctx, r, 1)
}

func (e *env) compareImport(ctx context.Context, r *Result, there int) (err error) {
	text := e.loadText()
	swapped := false
	r.Ratio, err = e.pairs(ctx, func(ctx context.Context) (time.Duration, time.Duration, error) {
		var taken [2][]time.Duration
		defer func() { swapped = !swapped }()
		err := oneTurn(ctx, 1, swapped, &taken, e.fill(there, e.copyOnce), e.fill(0, func(ctx context.Context, table pgx.Identifier) error {
			return e.copyPlain(ctx, table, text)
		}))
		if err != nil {
			return 0, 0, err
		}
		return taken[0][0], taken[1][0], nil
	})
	return err
}

// measureImportAgain compares CopyOnce of rows that are all there with CopyOnce of them
// when none was.
func measureImportAgain(ctx context.Context, e *env, r *Result) (err error) {
	r.Ratio, err = e.pairs(ctx, func(ctx context.Context) (again, first time.Duration, err error) {
		_, err = e.fill(0, func(ctx context.Context, table pgx.Identifier) error {
			taken, err := repeat(ctx, 2, func(ctx context.Context) error { return e.copyOnce(ctx, table) })
			if err == nil {
				first, again = taken[0], taken[1]
			}
			return err
		})(ctx, 1)
		return again, first, err
	})
	return err
}

// fill is a block that fills one new table, which is dropped then. The first rows are
// there already.
func (e *env) fill(there int, load func(context.Context, pgx.Identifier) error) block {
	return func(ctx context.Context, _ int) ([]time.Duration, error) {
		table, err := e.table(ctx, "load", loadColumns)
		if err != nil {
			return nil, err
		}
		if _, err := e.admin.Exec(ctx, "INSERT INTO "+table.Sanitize()+" SELECT 1, line, '', 0, '' FROM generate_series(1, $1) AS line", there); err != nil {
			return nil, err
		}
		taken, err := repeat(ctx, 1, func(ctx context.Context) error { return load(ctx, table) })
		if err == nil {
			_, err = e.admin.Exec(ctx, "DROP TABLE "+table.Sanitize())
		}
		return taken, err
	}
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
