package main

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/migrations"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgxpool"
)

// postgres is a durable server and the locks on it.
type postgres struct {
	server
	plain    peer
	settings string
	url      string
	pool     *pgxpool.Pool
}

func startPostgres(ctx context.Context) (*postgres, error) {
	p := &postgres{}
	if err := p.start(ctx); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *postgres) start(ctx context.Context) error {
	s, err := pgtemp.Start(ctx, &pgtemp.Options{Durable: true})
	if err != nil {
		return err
	}
	p.later(func() { _ = s.Stop() })
	p.url = s.URL("postgres")
	if p.pool, err = pgxpool.New(ctx, p.url); err != nil {
		return err
	}
	p.later(p.pool.Close)
	if err := migrations.Up(ctx, p.pool); err != nil {
		return err
	}
	if err := p.describe(ctx); err != nil {
		return err
	}
	for _, add := range []func(context.Context) error{p.twoUpdates, p.gatepost, p.session, p.naive, p.cirello, p.allisson} {
		if err := add(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (p *postgres) describe(ctx context.Context) error {
	var fsync, commit string
	if err := p.pool.QueryRow(ctx, "SELECT current_setting('fsync'), current_setting('synchronous_commit')").Scan(&fsync, &commit); err != nil {
		return err
	}
	if fsync != "on" || commit != "on" {
		return fmt.Errorf("the server is not durable: fsync %s, synchronous_commit %s", fsync, commit)
	}
	var version string
	err := p.pool.QueryRow(ctx, "SHOW server_version").Scan(&version)
	p.settings = fmt.Sprintf("PostgreSQL %s: fsync %s, synchronous_commit %s", version, fsync, commit)
	return err
}

// twoUpdates is what all are compared with.
func (p *postgres) twoUpdates(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, `CREATE TABLE plain (id int PRIMARY KEY, holder text, until timestamptz) WITH (fillfactor = 70);
		INSERT INTO plain VALUES (1, NULL, NULL)`)
	p.plain = peer{name: "two UPDATE commits (PostgreSQL)", refuses: "-", cycle: func(ctx context.Context) error {
		if _, err := p.pool.Exec(ctx, "UPDATE plain SET holder = $1, until = clock_timestamp() WHERE id = 1", "me"); err != nil {
			return err
		}
		_, err := p.pool.Exec(ctx, "UPDATE plain SET holder = NULL, until = NULL WHERE id = 1")
		return err
	}}
	return err
}

func (p *postgres) gatepost(context.Context) error {
	client, err := pglock.New(p.pool, pglock.Config{})
	if err != nil {
		return err
	}
	p.later(func() { _ = client.Close(context.Background()) })
	p.peers = append(p.peers, peer{name: "Gatepost lease", refuses: "the fence, in the transaction", cycle: func(ctx context.Context) error {
		lease, err := client.TryAcquire(ctx, "peers", nil)
		if err != nil {
			return err
		}
		return lease.Release(ctx)
	}})
	return nil
}
