package pglock_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"github.com/gatepost/gatepost/internal/faultproxy"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// envPuppet turns the test binary into a puppet: a client of one name in a process
// of its own, which can be stopped and killed. It does what it is told, a line at a
// time, and ends with its input.
const envPuppet = "PGLOCK_TEST_PUPPET"

// role is what a puppet is told at first.
type role struct {
	URL, Proxy        string // Proxy may be empty
	Name, Table       string
	TTL, FenceTimeout time.Duration
}

// answer is what came of a command.
type answer struct {
	Err   string
	Is    []string // which of matched it matches
	Token int64
}

// matched are the errors that tests ask an answer for.
var matched = map[string]error{
	"held": pglock.ErrHeld, "lost": pglock.ErrLost, "expired": pglock.ErrExpired, "superseded": pglock.ErrSuperseded,
	"fenced": pglock.ErrFenced, "timeout": pglock.ErrFenceTimeout, "unknown": pglock.ErrCommitUnknown,
}

func (a answer) is(what string) bool { return slices.Contains(a.Is, what) }

// beAPuppet is the main of a puppet.
func beAPuppet(text string) (code int) {
	ctx := context.Background()
	p := &puppetMain{}
	if err := p.start(ctx, text); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	out := json.NewEncoder(os.Stdout)
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		err := p.do(ctx, lines.Text())
		a := answer{}
		if p.lease != nil {
			a.Token = p.lease.Token()
		}
		if err != nil {
			a.Err = err.Error()
		}
		for what, target := range matched {
			if errors.Is(err, target) {
				a.Is = append(a.Is, what)
			}
		}
		if out.Encode(a) != nil {
			return 1
		}
	}
	return 0
}

// puppetMain is the inside of a puppet.
type puppetMain struct {
	role
	pool   *pgxpool.Pool
	client *pglock.Client
	lease  *pglock.Lease
	tx     pgx.Tx
}

func (p *puppetMain) start(ctx context.Context, text string) error {
	if err := json.Unmarshal([]byte(text), &p.role); err != nil {
		return err
	}
	cfg, err := pgxpool.ParseConfig(p.URL)
	if err != nil {
		return err
	}
	cfg.ConnConfig.RuntimeParams["application_name"] = p.Table // short enough
	if p.Proxy != "" {
		faultproxy.Through(cfg, p.Proxy)
	}
	if p.pool, err = pgxpool.NewWithConfig(ctx, cfg); err != nil {
		return err
	}
	p.client, err = pglock.New(p.pool, pglock.Config{Holder: "puppet", TTL: p.TTL, FenceTimeout: p.FenceTimeout})
	return err
}

// do carries a command out.
func (p *puppetMain) do(ctx context.Context, command string) (err error) {
	write := func(tx pgx.Tx) error { return insert(ctx, tx, p.Table, command) }
	switch command {
	case "try":
		p.lease, err = p.client.TryAcquire(ctx, p.Name, nil)
	case "wait":
		p.lease, err = p.client.Acquire(ctx, p.Name, nil)
	case "write":
		return p.lease.InTx(ctx, write)
	case "write without a look at the lease":
		return p.client.InTx(ctx, p.lease.Sequencer(), write)
	case "write in a transaction of its own":
		return pgx.BeginFunc(ctx, p.pool, func(tx pgx.Tx) error {
			return errors.Join(pglock.Fence(ctx, tx, p.lease.Sequencer()), write(tx))
		})
	case "begin":
		if p.tx, err = p.lease.BeginTx(ctx, pgx.TxOptions{}); err == nil {
			err = write(p.tx)
		}
	case "commit":
		return p.tx.Commit(ctx)
	case "renew":
		return p.lease.Renew(ctx)
	case "release":
		return p.lease.Release(ctx)
	case "done":
		<-p.lease.Done()
		return p.lease.Err()
	default: // a statement in the open transaction
		_, err = p.tx.Exec(ctx, command)
	}
	return err
}
