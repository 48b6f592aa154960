package main

import (
	"context"
	"fmt"
	"io"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/tempdb"
	"github.com/jackc/pgx/v5/pgxpool"
)

// openDatabase connects to the database of the URL, or starts a temporary one
// with the schema in it and says so on w. The caller calls done.
func openDatabase(ctx context.Context, url string, w io.Writer) (pool *pgxpool.Pool, done func(), err error) {
	if source := cli.SourceOf(url); source.URL != "" {
		pool, err := source.Connect(ctx)
		if err != nil {
			return nil, nil, err
		}
		return pool, pool.Close, nil
	}
	fmt.Fprintln(w, "No --database-url: starting a temporary PostgreSQL; what is imported is gone when this program ends.")
	db, err := tempdb.Start(ctx)
	if err != nil {
		return nil, nil, err
	}
	fmt.Fprintln(w, "Using", db.Describe())
	return db.Pool, db.Close, nil
}
