//go:build linux

package faults_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// hold acquires a name, writes under it for a while, and releases it. It goes on a
// little after a loss, like a holder that doesn't look.
func (w *worker) hold(ctx context.Context, random *rand.Rand) {
	o := w.rec.call(acquire, pick(random, w.Names))
	lease, err := w.acquire(ctx, random, o.Name)
	w.granted(o, lease, err)
	if err != nil {
		return
	}
	h := handOf(lease.Sequencer())
	if random.IntN(2) == 0 {
		w.mail(h.seq)
	}
	for range 1 + random.IntN(8) {
		if !w.write(ctx, random, lease, h) {
			break
		}
		if random.IntN(4) == 0 {
			w.renew(ctx, lease, h)
		}
		pause(ctx, between(random, 0, w.TTL/10))
	}
	w.release(ctx, lease, h)
}

// acquire takes a name in one of the ways there are.
func (w *worker) acquire(ctx context.Context, random *rand.Rand, name string) (*pglock.Lease, error) {
	if random.IntN(4) == 0 {
		ctx, cancel := context.WithTimeout(ctx, between(random, w.TTL/100, w.TTL))
		defer cancel()
		return w.client.TryAcquire(ctx, name, nil)
	}
	return w.client.Acquire(ctx, name, &pglock.AcquireOptions{Wait: between(random, w.TTL, 4*w.TTL)})
}

// granted records how an acquisition ended, and the moment of its loss.
func (w *worker) granted(o *op, lease *pglock.Lease, err error) {
	if err == nil {
		o.Token, o.Nonce = lease.Token(), handOf(lease.Sequencer()).nonce
	}
	w.rec.done(o, err)
	if err == nil {
		go w.watch(o, lease)
	}
}

// watch records a loss as soon as it is signalled.
func (w *worker) watch(of *op, lease *pglock.Lease) {
	<-lease.Done()
	at := now()
	left := time.Until(lease.Deadline())
	if errors.Is(lease.Err(), pglock.ErrReleased) {
		return
	}
	w.rec.note(op{
		Kind: lost, Name: of.Name, Call: at, Return: at, Result: ok, Detail: lease.Err().Error(),
		Token: of.Token, Nonce: of.Nonce, Of: of.ID, Deadline: now() + int64(left),
	})
}

// write raises the register of the name, in one of the ways there are. It says whether
// its outcome is known: if not, the holder must not write again under the same token,
// which keeps nobody apart but others. A new acquisition waits for the outcome.
func (w *worker) write(ctx context.Context, random *rand.Rand, lease *pglock.Lease, h hand) (known bool) {
	o := w.rec.call(write, h.seq.Name())
	o.Token, o.Nonce = h.seq.Token(), h.nonce
	wait := stall(0)
	if random.IntN(2) == 0 {
		wait = between(random, 0, w.TTL/2)
	}
	hang, prepare := w.orders.take()
	work := func(tx pgx.Tx) error { return raise(ctx, tx, o, h, max(wait, hang)) }
	how := random.IntN(4)
	var err error
	switch {
	case prepare != "":
		o.Own = true
		err = w.prepare(ctx, h, o, prepare)
	case how == 0 || hang > 0:
		err = lease.InTx(ctx, work)
	case how == 1:
		err = w.client.InTx(ctx, h.seq, work) // looks at nothing but the database
	case how == 2:
		o.Own = true
		err = pgx.BeginFunc(ctx, w.pool, func(tx pgx.Tx) error {
			if err := pglock.Fence(ctx, tx, h.seq); err != nil {
				return err
			}
			return work(tx)
		})
	default:
		err = w.writeInSavepoint(ctx, random, lease, work)
	}
	w.rec.done(o, err)
	return err == nil || o.Result == "fenced" || o.Result == "own" && prepare == ""
}

// writeInSavepoint writes behind a savepoint, after one that was rolled back.
func (w *worker) writeInSavepoint(ctx context.Context, random *rand.Rand, lease *pglock.Lease, work func(pgx.Tx) error) error {
	level := pick(random, []pgx.TxIsoLevel{"", pgx.ReadCommitted, pgx.RepeatableRead, pgx.Serializable})
	tx, err := lease.BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	err = pgx.BeginFunc(ctx, tx, func(pgx.Tx) error { return errOwn })
	if !errors.Is(err, errOwn) {
		return err
	}
	if err := pgx.BeginFunc(ctx, tx, work); err != nil {
		return err
	}
	if random.IntN(10) == 0 {
		return errOwn
	}
	return tx.Commit(ctx)
}

// prepare leaves a fenced write prepared, for the conductor to end.
func (w *worker) prepare(ctx context.Context, h hand, o *op, gid string) error {
	tx, err := w.pool.Begin(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = tx.Rollback(context.WithoutCancel(ctx)) }()
	if err := pglock.Fence(ctx, tx, h.seq); err != nil {
		return err
	}
	if err := raise(ctx, tx, o, h, 0); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, "PREPARE TRANSACTION '"+gid+"'"); err != nil {
		return err
	}
	return errOwn // nobody has committed it yet
}

func (w *worker) renew(ctx context.Context, lease *pglock.Lease, h hand) {
	o := w.rec.call(renew, h.seq.Name())
	o.Token, o.Nonce = h.seq.Token(), h.nonce
	w.rec.done(o, lease.Renew(ctx))
}

func (w *worker) release(ctx context.Context, lease *pglock.Lease, h hand) {
	o := w.rec.call(release, h.seq.Name())
	o.Token, o.Nonce = h.seq.Token(), h.nonce
	w.rec.note(*o) // whose release it is must be known even if it never ends
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	w.rec.done(o, lease.Release(ctx))
}

// mail hands a sequencer over, through the file system: it may be old when it is read.
func (w *worker) mail(seq pglock.Sequencer) {
	file := filepath.Join(w.Dir, "mail-"+seq.Name())
	if os.WriteFile(file+w.name(), []byte(seq.String()), 0o644) == nil {
		_ = os.Rename(file+w.name(), file)
	}
}

// courier writes with a sequencer that it was handed.
func (w *worker) courier(ctx context.Context, random *rand.Rand) {
	text, err := os.ReadFile(filepath.Join(w.Dir, "mail-"+pick(random, w.Names)))
	if err != nil {
		return // nothing has come yet
	}
	seq, err := pglock.ParseSequencer(string(text))
	if err != nil {
		panic(err) // it was written whole
	}
	h := handOf(seq)
	o := w.rec.call(deliver, seq.Name())
	o.Token, o.Nonce = seq.Token(), h.nonce
	w.rec.done(o, w.client.InTx(ctx, seq, func(tx pgx.Tx) error {
		pause(ctx, between(random, 0, w.TTL/4))
		return audit(ctx, tx, o, h)
	}))
}

// lead runs an election, and writes while it leads.
func (w *worker) lead(ctx context.Context, random *rand.Rand) {
	elector := w.client.Elector("leader", nil)
	o := w.rec.call(acquire, "leader")
	_ = elector.Run(ctx, func(ctx context.Context, lease *pglock.Lease) error {
		w.granted(o, lease, nil)
		h := handOf(lease.Sequencer())
		for range 1 + random.IntN(10) {
			if !w.write(ctx, random, lease, h) {
				break
			}
			pause(ctx, between(random, 0, w.TTL/5))
		}
		if random.IntN(4) == 0 {
			_ = elector.HandOver(w.name())
		}
		w.rec.note(op{Kind: release, Name: "leader", Token: h.seq.Token(), Nonce: h.nonce, Call: now()}) // by Run
		o = w.rec.call(acquire, "leader")
		return nil
	})
}
