package main

import (
	"context"
	"database/sql"
	"errors"
	"time"

	cirello "cirello.io/pglock"
	allisson "github.com/allisson/go-pglock/v3"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"
)

// database is a database/sql pool on the server, of pgx's driver.
func (p *postgres) database() (*sql.DB, error) {
	cfg, err := pgx.ParseConfig(p.url)
	if err != nil {
		return nil, err
	}
	db := stdlib.OpenDB(*cfg)
	p.later(func() { _ = db.Close() })
	return db, nil
}

// cirello is cirello.io/pglock: a row with a version that a heartbeat renews. UnsafeNew,
// since New knows lib/pq only.
func (p *postgres) cirello(context.Context) error {
	db, err := p.database()
	if err != nil {
		return err
	}
	client, err := cirello.UnsafeNew(db, cirello.WithLeaseDuration(30*time.Second), cirello.WithHeartbeatFrequency(10*time.Second))
	if err != nil {
		return err
	}
	if err := client.CreateTable(); err != nil {
		return err
	}
	p.peers = append(p.peers, peer{name: "cirello.io/pglock 1.16", refuses: "nothing: its version changes with each heartbeat", cycle: func(ctx context.Context) error {
		lock, err := client.AcquireContext(ctx, "peers", cirello.FailIfLocked())
		if err != nil {
			return err
		}
		return client.ReleaseContext(ctx, lock)
	}})
	return nil
}

// allisson is allisson/go-pglock: a session's advisory lock on a connection of its own,
// kept here over the cycles.
func (p *postgres) allisson(ctx context.Context) error {
	db, err := p.database()
	if err != nil {
		return err
	}
	lock, err := allisson.NewLock(ctx, 8, db)
	if err != nil {
		return err
	}
	p.later(func() { _ = lock.Close() })
	p.peers = append(p.peers, peer{name: "allisson/go-pglock 3.0", refuses: "nothing: it has no token", cycle: func(ctx context.Context) error {
		if had, err := lock.Lock(ctx); err != nil || !had {
			return errors.Join(err, errBusy)
		}
		return lock.Unlock(ctx)
	}})
	return nil
}
