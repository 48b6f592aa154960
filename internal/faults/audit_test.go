//go:build linux

package faults_test

import (
	"context"
	_ "embed"
	"strings"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

//go:embed testdata/audit.sql
var auditSQL string

// hand is what a write presents: the parts of a sequencer.
type hand struct {
	seq   pglock.Sequencer
	nonce string
}

// handOf takes a sequencer's text apart: v1:exclusive:SLOT:TOKEN:NONCE:NAME.
func handOf(seq pglock.Sequencer) hand {
	return hand{seq: seq, nonce: strings.Split(seq.String(), ":")[4]}
}

// stall is how long a write waits, between what it reads and what it writes.
type stall = time.Duration

// raise reads the register, waits, and appends the next number: right only if nobody
// else writes meanwhile, which is for the fence to see to.
func raise(ctx context.Context, tx pgx.Tx, o *op, h hand, wait stall) error {
	const read = `SELECT coalesce(max(counter), 0) FROM faults.writes WHERE name = $1 AND kind = 'write'`
	if err := tx.QueryRow(ctx, read, o.Name).Scan(&o.Counter); err != nil {
		return err
	}
	o.Counter++
	pause(ctx, wait)
	return audit(ctx, tx, o, h)
}

// audit appends what proves that a write was committed.
func audit(ctx context.Context, tx pgx.Tx, o *op, h hand) error {
	_, err := tx.Exec(ctx, `INSERT INTO faults.writes (op, kind, name, token, nonce, counter) VALUES ($1, $2, $3, $4, $5, $6)`,
		o.ID, string(o.Kind), o.Name, h.seq.Token(), h.nonce, o.Counter)
	return err
}

// effect appends what happens under an idempotency key.
func effect(ctx context.Context, tx pgx.Tx, o *op) error {
	_, err := tx.Exec(ctx, `INSERT INTO faults.effects (op, kind, key) VALUES ($1, $2, $3)`, o.ID, string(o.Kind), o.Name)
	return err
}
