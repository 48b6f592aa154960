// Package tempdb is a temporary PostgreSQL with Gatepost's schema in it, for programs
// that show something and were given no database.
package tempdb

import (
	"context"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is a server that is gone after Close, and a pool on a database in it.
type Database struct {
	Pool   *pgxpool.Pool
	server *pgtemp.Server
}

// Start starts a server in about a second. The caller closes the Database.
func Start(ctx context.Context) (*Database, error) {
	server, err := pgtemp.Start(ctx, nil)
	if err != nil {
		return nil, err
	}
	pool, err := cli.Connect(ctx, server.URL(""))
	if err != nil {
		_ = server.Stop()
		return nil, err
	}
	db := &Database{pool, server}
	if err := migrations.Up(ctx, pool); err != nil {
		db.Close()
		return nil, err
	}
	return db, nil
}

// Describe says what server it is, for people.
func (db *Database) Describe() string { return db.server.Describe() }

// Close closes the pool and stops the server.
func (db *Database) Close() {
	db.Pool.Close()
	_ = db.server.Stop() // it is of no use to anybody
}
