package main

import (
	"context"
	"errors"
)

// errBusy can't be: nobody else wants the lock.
var errBusy = errors.New("the lock is held by nobody, and busy")

// session is the session's advisory lock: the floor, for it writes nothing. It lasts as
// long as its connection.
func (p *postgres) session(ctx context.Context) error {
	conn, err := p.pool.Acquire(ctx)
	if err != nil {
		return err
	}
	p.later(conn.Release)
	p.peers = append(p.peers, peer{name: "session advisory lock", refuses: "nothing: it has no token", cycle: func(ctx context.Context) error {
		var had bool
		if err := conn.QueryRow(ctx, "SELECT pg_try_advisory_lock(7)").Scan(&had); err != nil || !had {
			return errors.Join(err, errBusy)
		}
		if err := conn.QueryRow(ctx, "SELECT pg_advisory_unlock(7)").Scan(&had); err != nil || !had {
			return errors.Join(err, errBusy)
		}
		return nil
	}})
	return nil
}

// naive is the table that people write first: look, then take, by the program's clock.
// Two can look at the same time.
func (p *postgres) naive(ctx context.Context) error {
	_, err := p.pool.Exec(ctx, `CREATE TABLE naive (name text PRIMARY KEY, owner text, until timestamptz) WITH (fillfactor = 70);
		INSERT INTO naive VALUES ('peers', NULL, NULL)`)
	p.peers = append(p.peers, peer{name: "SELECT, then UPDATE (wrong)", refuses: "nothing; nor a second holder", cycle: func(ctx context.Context) error {
		var free bool
		err := p.pool.QueryRow(ctx, "SELECT owner IS NULL OR until < now() FROM naive WHERE name = $1", "peers").Scan(&free)
		if err != nil || !free {
			return errors.Join(err, errBusy)
		}
		if _, err := p.pool.Exec(ctx, "UPDATE naive SET owner = $2, until = now() + interval '30 s' WHERE name = $1", "peers", "me"); err != nil {
			return err
		}
		_, err = p.pool.Exec(ctx, "UPDATE naive SET owner = NULL WHERE name = $1", "peers")
		return err
	}})
	return err
}
