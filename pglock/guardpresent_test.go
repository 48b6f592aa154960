package pglock_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// What is presented by hand is no credential: token and nonce must be the row's.
func TestGuard_RefusesWhatIsPresentedWrongly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	c := asleep(t, pool)
	lapsed := func(t *testing.T, name string, _ *pglock.Lease) { expire(t, pool, name) }
	for what, test := range map[string]struct {
		lose    func(*testing.T, string, *pglock.Lease)
		present func(name string, seq pglock.Sequencer) string
		part    string
	}{
		"nothing":     {present: func(string, pglock.Sequencer) string { return "" }, part: "presents no fence"},
		"garbage":     {present: func(string, pglock.Sequencer) string { return "no % sequencer v1:exclusive:x" }, part: "presents no fence"},
		"no name":     {present: func(string, pglock.Sequencer) string { return "v1:exclusive:0:1:" + aNonce + ":%FF" }, part: "presents no fence"},
		"huge token":  {present: func(n string, _ pglock.Sequencer) string { return seqText("9999999999999999999", aNonce, n) }, part: "9999999999999999999 is fenced off"},
		"stale token": {present: func(n string, s pglock.Sequencer) string { return seqText("7", nonceOf(s), n) }, part: "the presented token 7 is fenced off"},
		"wrong nonce": {present: func(n string, s pglock.Sequencer) string { return strings.ReplaceAll(s.String(), nonceOf(s), aNonce) }, part: "has another nonce"},
		"another's nonce": {present: func(n string, s pglock.Sequencer) string {
			return strings.ReplaceAll(s.String(), nonceOf(s), nonceOf(acquire(t, c, pgtest.Name(t), nil).Sequencer()))
		}, part: "has another nonce"},
		"another lease": {present: func(string, pglock.Sequencer) string {
			return acquire(t, c, pgtest.Name(t), nil).Sequencer().String()
		}, part: "presents no fence"},
		"another mode": {present: func(_ string, s pglock.Sequencer) string {
			return strings.Replace(s.String(), "exclusive", "shared", 1)
		}, part: "presents no fence"},
		"another version": {present: func(_ string, s pglock.Sequencer) string { return strings.Replace(s.String(), "v1", "v2", 1) }, part: "presents no fence"},
		"another slot":    {present: func(_ string, s pglock.Sequencer) string { return strings.Replace(s.String(), ":0:", ":1:", 1) }},
		"no slot":         {present: func(_ string, s pglock.Sequencer) string { return strings.Replace(s.String(), ":0:", "::", 1) }},
		"a slot of text":  {present: func(_ string, s pglock.Sequencer) string { return strings.Replace(s.String(), ":0:", ":+0:", 1) }},
		"a huge slot": {present: func(_ string, s pglock.Sequencer) string {
			return strings.Replace(s.String(), ":0:", ":9999999999:", 1)
		}},
		"a part of the name": {present: func(n string, s pglock.Sequencer) string { return strings.Replace(s.String(), n, n+":x", 1) }, part: "presents no fence"},
		"lapsed":             {lose: lapsed, part: "has expired"},
		"released":           {lose: func(t *testing.T, _ string, l *pglock.Lease) { _ = l.Release(t.Context()) }, part: "was released"},
		"taken over": {lose: func(t *testing.T, name string, l *pglock.Lease) {
			expire(t, pool, name)
			acquire(t, asleep(t, pool), name, nil)
		}, part: "is fenced off"},
		"deleted": {lose: func(t *testing.T, name string, _ *pglock.Lease) {
			exec(t, pool, "DELETE FROM gatepost.leases WHERE name = $1", name)
		}, part: "of no lease that exists (current token none)"},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			name := pgtest.Name(t)
			l := acquire(t, c, name, nil)
			table := guardedTable(t, pool, "(note text)", byLease(name))
			text := l.Sequencer().String()
			if test.present != nil {
				text = test.present(name, l.Sequencer())
			}
			if test.lose != nil {
				test.lose(t, name, l)
			}
			tx := begin(t, pool, pgx.TxOptions{})
			present(t, tx, text)
			wantGuard(t, what, insert(t.Context(), tx, table, "x"), test.part, "table public."+table, name)
		})
	}
}

func nonceOf(seq pglock.Sequencer) string { return strings.Split(seq.String(), ":")[4] }

func seqText(token, nonce, name string) string {
	return "v1:exclusive:0:" + token + ":" + nonce + ":" + name
}

// A setting of the session, its role or its database is a presented fence like another,
// and what only a guard should set opens nothing.
func TestGuard_SettingsOfTheSessionAreNoCredential(t *testing.T) {
	t.Parallel()
	pool, lease := pgtest.Pool(t), pgtest.Name(t)
	c := asleep(t, pool)
	l := acquire(t, c, lease, nil)
	table := guardedTable(t, pool, "(note text)", byLease(lease))
	stale := strings.Replace(l.Sequencer().String(), nonceOf(l.Sequencer()), aNonce, 1)
	ours := poolWith(t, pgtest.URL(t), setting("gatepost.fence", stale), setting("gatepost.fenced", "\n1/"+lease+"\n"))
	_, err := ours.Exec(t.Context(), "INSERT INTO "+table+" VALUES ('x')")
	wantGuard(t, "setting", err, "has another nonce")
	// And it is not in the way of a good one.
	worker := asleep(t, ours)
	write := func(tx pgx.Tx) error { return insert(t.Context(), tx, table, "x") }
	if err := worker.InTx(t.Context(), l.Sequencer(), write); err != nil {
		t.Errorf("InTx: %v", err)
	}
	if err := pgx.BeginFunc(t.Context(), ours, func(tx pgx.Tx) error {
		return errors.Join(pglock.Fence(t.Context(), tx, l.Sequencer()), write(tx))
	}); err != nil {
		t.Errorf("Fence: %v", err)
	}
	tx := begin(t, pool, pgx.TxOptions{})
	err = run(t, tx, "SELECT set_config('gatepost.fenced', E'\\n' || pg_current_xact_id() || '/"+lease+"' || E'\\n', true)", "INSERT INTO "+table+" VALUES ('x')")
	wantGuard(t, "forged mark", err, "presents no fence")
}

// A fence presented by hand is locked by the first guarded statement, and a takeover
// waits for the commit. Without FOR KEY SHARE it would not.
func TestGuard_HoldsAFencePresentedByHandUntilCommit(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range levels {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			lease := pgtest.Name(t)
			l := acquire(t, asleep(t, pool), lease, nil)
			table := guardedTable(t, pool, "(note text)", byLease(lease))
			tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
			present(t, tx, l.Sequencer().String())
			if err := insert(t.Context(), tx, table, "x"); err != nil {
				t.Fatal(err)
			}
			expire(t, pool, lease)
			_, err := asleep(t, pool).TryAcquire(t.Context(), lease, nil)
			held, ok := errors.AsType[*pglock.HeldError](err)
			if !ok || !held.Fenced {
				t.Fatalf("takeover: %v; want a *HeldError with Fenced", err)
			}
			// The expiry is not tested again in the middle of the writes.
			if err := insert(t.Context(), tx, table, "y"); err != nil {
				t.Fatalf("the second write: %v", err)
			}
			commit(t, tx)
			acquire(t, asleep(t, pool), lease, nil)
		})
	}
}

// A fence of pglock's has tested the expiry: its transaction isn't torn apart.
func TestGuard_TestsTheExpiryOfAFenceOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, own := range []bool{false, true} {
		lease := pgtest.Name(t)
		l := acquire(t, asleep(t, pool), lease, nil)
		table := guardedTable(t, pool, "(note text)", byLease(lease))
		tx := fenced(t, pool, l, own, pgx.ReadCommitted)
		expire(t, pool, lease)
		if err := insert(t.Context(), tx, table, "x"); err != nil {
			t.Errorf("Fence %t: %v", own, err)
		}
		commit(t, tx)
		// Nor is one transaction's test another's.
		tested := begin(t, pool, pgx.TxOptions{})
		present(t, tested, "1/"+l.Sequencer().String())
		wantGuard(t, "another's test", insert(t.Context(), tested, table, "x"), "has expired")
	}
}

// A lease that was released since the fence passed is over for a guard, and InTx says
// so in its own words. What a guard says of another lease stays the guard's.
func TestGuard_RefusesALeaseThatWasReleasedSinceTheFence(t *testing.T) {
	t.Parallel()
	pool := pgtest.ReadCommitted(t) // an older snapshot has the lease still
	c := asleep(t, pool)
	for what, run := range map[string]func(*pglock.Lease, func(pgx.Tx) error) error{
		"InTx": func(l *pglock.Lease, fn func(pgx.Tx) error) error { return l.InTx(t.Context(), fn) },
		"Client.InTx": func(l *pglock.Lease, fn func(pgx.Tx) error) error {
			return c.InTx(t.Context(), l.Sequencer(), fn)
		},
	} {
		lease, other := pgtest.Name(t), pgtest.Name(t)
		l := acquire(t, c, lease, nil)
		table := guardedTable(t, pool, "(note text)", byLease(lease))
		foreign := guardedTable(t, pool, "(note text)", byLease(other))
		err := run(l, func(tx pgx.Tx) error { return insert(t.Context(), tx, foreign, "x") })
		wantGuard(t, what+", another lease's table", err, "presents no fence")
		if errors.Is(err, pglock.ErrFenced) {
			t.Errorf("%s, another lease's table: %v matches ErrFenced while the lease is held", what, err)
		}
		err = run(l, func(tx pgx.Tx) error {
			if err := l.Release(t.Context()); err != nil {
				t.Error(err)
			}
			return insert(t.Context(), tx, table, "x")
		})
		wantGuard(t, what, err, "was released")
		if refused, ok := errors.AsType[*pglock.FencedError](err); !ok || !errors.Is(err, pglock.ErrReleased) ||
			refused.Name != lease || refused.Token != l.Token() {
			t.Errorf("%s: %v, want a FencedError of %q with ErrReleased", what, err, lease)
		}
		if n := rows(t, pool, table) + rows(t, pool, foreign); n != 0 {
			t.Errorf("%s: %d rows were written", what, n)
		}
	}
}

// Where it can't be looked into any more, a guard's refusal is ErrFenced still.
func TestGuard_RefusalIsFencedWithoutAServer(t *testing.T) {
	t.Parallel()
	pool, lease := pgtest.Pool(t), pgtest.Name(t)
	table := guardedTable(t, pool, "(note text)", byLease(lease))
	l := acquire(t, asleep(t, pool), lease, nil)
	own := pgtest.ReadCommitted(t)
	worker, err := pglock.New(own, pglock.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = worker.Close(context.Background()) })
	err = worker.InTx(t.Context(), l.Sequencer(), func(tx pgx.Tx) error {
		if err := l.Release(t.Context()); err != nil {
			t.Error(err)
		}
		err := insert(t.Context(), tx, table, "x")
		go own.Close()
		eventually(t, "a closed pool", 10*time.Second, func() bool {
			conn, err := own.Acquire(t.Context())
			if err == nil {
				conn.Release()
			}
			return err != nil
		})
		return err
	})
	wantGuard(t, "a closed pool", err, "was released")
	if !errors.Is(err, pglock.ErrFenced) {
		t.Errorf("%v, want ErrFenced", err)
	}
}

// The clock is read after the wait for the row.
func TestGuard_ReadsTheClockAfterTheLock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := waitsUntilItLapsed(t, pool, func(l *pglock.Lease) func() error {
		table := guardedTable(t, pool, "(note text)", byLease(l.Name()))
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}) // else it is told by its snapshot's row
		present(t, tx, l.Sequencer().String())
		return func() error { return insert(context.WithoutCancel(t.Context()), tx, table, "x") }
	})
	wantGuard(t, "lapsed in the wait", err, "has expired")
}

// ROLLBACK TO gives the lock back, and with it what the guard found.
func TestGuard_ASavepointTakesItsFenceAlong(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, byHand := range map[string]bool{"set_config": true, "gatepost.fence": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			lease := pgtest.Name(t)
			l := acquire(t, asleep(t, pool), lease, nil)
			table := guardedTable(t, pool, "(note text)", byLease(lease))
			write := "INSERT INTO " + table + " VALUES ('x')"
			offer := "SELECT gatepost.fence('" + l.Sequencer().String() + "')"
			if byHand {
				offer = "SELECT set_config('gatepost.fence', '" + l.Sequencer().String() + "', true)"
			}
			tx := begin(t, pool, pgx.TxOptions{})
			if err := run(t, tx, "SAVEPOINT a", offer, write, "ROLLBACK TO a"); err != nil {
				t.Fatal(err)
			}
			wantGuard(t, "presented in it", run(t, tx, write), "presents no fence")

			tx = begin(t, pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted})
			present(t, tx, l.Sequencer().String())
			if err := run(t, tx, "SAVEPOINT a", write, "ROLLBACK TO a"); err != nil {
				t.Fatal(err)
			}
			expire(t, pool, lease)
			acquire(t, asleep(t, pool), lease, nil) // nothing holds it off any more
			wantGuard(t, "locked in it", run(t, tx, write), "is fenced off")
		})
	}
}

// With a snapshot older than the takeover it is a serialization failure: the next run of
// the transaction is told the truth.
func TestGuard_ATakeoverSinceTheSnapshotIsASerializationFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		lease := pgtest.Name(t)
		l := acquire(t, asleep(t, pool), lease, nil)
		table := guardedTable(t, pool, "(note text)", byLease(lease))
		tx := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		present(t, tx, l.Sequencer().String())
		expire(t, pool, lease)
		acquire(t, asleep(t, pool), lease, nil)
		err := insert(t.Context(), tx, table, "x")
		if code := codeOf(err); code != "40001" {
			t.Errorf("%s: %v, want 40001", level, err)
		}
		again := begin(t, pool, pgx.TxOptions{IsoLevel: level})
		present(t, again, l.Sequencer().String())
		err = insert(t.Context(), again, table, "x")
		wantGuard(t, "the next run", err, "is fenced off")
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || !strings.Contains(pgErr.Hint, "since this transaction took its snapshot") {
			t.Errorf("%s: it doesn't say that a snapshot can be too old: %v", level, err)
		}
	}
}
