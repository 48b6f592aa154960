package idem

import "github.com/jackc/pgx/v5"

// guardedRows, guardedRow and guardedResults tell a watch the error of a statement
// whose answer comes after it was sent.
type guardedRows struct {
	pgx.Rows
	watch *watch
}

func (r *guardedRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	_ = r.watch.note(r.Rows.Err())
	return false
}

func (r *guardedRows) Close() {
	r.Rows.Close()
	_ = r.watch.note(r.Rows.Err())
}

type guardedRow struct {
	row   pgx.Row
	watch *watch
}

func (r *guardedRow) Scan(dest ...any) error { return r.watch.note(r.row.Scan(dest...)) }

type guardedResults struct {
	pgx.BatchResults
	watch *watch
}

func (r *guardedResults) Close() error { return r.watch.note(r.BatchResults.Close()) }
