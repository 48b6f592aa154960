package pglock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// advance is one transaction of its own.
func advance(t *testing.T, pool *pgxpool.Pool, resource string, token int64) error {
	t.Helper()
	return pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
		return pglock.Advance(t.Context(), tx, resource, token)
	})
}

func beginTx(t *testing.T, pool *pgxpool.Pool) pgx.Tx {
	t.Helper()
	tx, err := pool.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) })
	return tx
}

func TestAdvance_AcceptsWhatIsNotBelowTheMark(t *testing.T) {
	t.Parallel()
	pool, resource := pgtest.Pool(t), pgtest.Name(t)
	for _, token := range []int64{5, 5, 9, 9} {
		if err := advance(t, pool, resource, token); err != nil {
			t.Errorf("token %d: %v", token, err)
		}
	}
	err := advance(t, pool, resource, 8)
	fenced, ok := errors.AsType[*pglock.FencedError](err)
	if !ok || fenced.Current != 9 || fenced.Token != 8 || fenced.Name != resource {
		t.Errorf("error is %v, want token 8 refused for 9", err)
	}
	if mark := value[int64](t, pool, `SELECT token FROM gatepost.fences WHERE resource = $1`, resource); mark != 9 {
		t.Errorf("the mark is %d, want 9", mark)
	}
}

func TestAdvance_EqualTokensRunSideBySideAndAHigherOneWaits(t *testing.T) {
	t.Parallel()
	pool, resource := pgtest.Pool(t), pgtest.Name(t)
	if err := advance(t, pool, resource, 5); err != nil {
		t.Fatal(err)
	}
	var writers []pgx.Tx
	for range 2 { // the pool has 4 connections
		tx := beginTx(t, pool)
		if err := pglock.Advance(t.Context(), tx, resource, 5); err != nil {
			t.Fatal(err)
		}
		writers = append(writers, tx)
	}
	higher := make(chan error, 1)
	go func() { higher <- advance(t, pool, resource, 6) }()
	waitsForRow(t, pool, resource)
	for _, tx := range writers {
		select {
		case err := <-higher:
			t.Fatalf("the higher token did not wait: %v", err)
		default:
		}
		if err := tx.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-higher; err != nil {
		t.Errorf("after the commits: %v", err)
	}
}

func TestAdvance_EqualTokenWaitsForAHigherOneAndIsRefused(t *testing.T) {
	t.Parallel()
	pool, resource := pgtest.Pool(t), pgtest.Name(t)
	if err := advance(t, pool, resource, 5); err != nil {
		t.Fatal(err)
	}
	higher := beginTx(t, pool)
	if err := pglock.Advance(t.Context(), higher, resource, 6); err != nil {
		t.Fatal(err)
	}
	equal := make(chan error, 1)
	go func() { equal <- advance(t, pool, resource, 5) }()
	waitsForRow(t, pool, resource)
	if err := higher.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	wantErr(t, <-equal, pglock.ErrFenced)
}

// A mark that moved after the snapshot says nothing of whose token is higher.
func TestAdvance_MovedMarkIsASerializationFailure(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, moved := range []int64{7, 9} { // to below the token, and to the same one
		for _, level := range levels[1:] {
			resource := pgtest.Name(t)
			if err := advance(t, pool, resource, 5); err != nil {
				t.Fatal(err)
			}
			writer := begin(t, pool, pgx.TxOptions{IsoLevel: level})
			if _, err := writer.Exec(t.Context(), `SELECT FROM gatepost.fences`); err != nil {
				t.Fatal(err)
			}
			if err := advance(t, pool, resource, moved); err != nil {
				t.Fatal(err)
			}
			err := pglock.Advance(t.Context(), writer, resource, 9)
			if errors.Is(err, pglock.ErrFenced) || sqlState(err) != "40001" {
				t.Errorf("%s, mark %d: error is %v, want 40001", level, moved, err)
			}
		}
	}
}

// waitsForRow returns when a backend waits for the mark of the resource.
func waitsForRow(t *testing.T, pool *pgxpool.Pool, resource string) {
	t.Helper()
	eventually(t, "a wait for "+resource, 10*time.Second, func() bool {
		return value[bool](t, pool, `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE wait_event_type = 'Lock' AND query LIKE '%gatepost.fences%')`)
	})
}

func TestAdvance_RefusesBadInput(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	wantErr(t, advance(t, pool, "", 1), pglock.ErrInvalidName)
	wantErr(t, advance(t, pool, "x", -1), pglock.ErrInvalidConfig)
	wantErr(t, pglock.Advance(t.Context(), pool, "x", 1), pglock.ErrFenceMisplaced)
}

func TestInTxAll_NeedsEveryLease(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	var leases []*pglock.Lease
	var seqs []pglock.Sequencer
	for _, suffix := range []string{"c", "a", "b"} {
		l := acquire(t, c, name+suffix, nil)
		leases, seqs = append(leases, l), append(seqs, l.Sequencer())
	}
	pass := func(pgx.Tx) error { return nil }
	if err := c.InTxAll(t.Context(), seqs, pass); err != nil {
		t.Fatal(err)
	}
	if err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pglock.FenceAll(t.Context(), tx, seqs...) }); err != nil {
		t.Fatal(err)
	}
	expire(t, pool, name+"b")
	err := c.InTxAll(t.Context(), seqs, func(pgx.Tx) error { t.Error("fn was called"); return nil })
	wantErr(t, err, pglock.ErrExpired)
	release(t, leases[1])
	err = c.InTxAll(t.Context(), seqs, func(pgx.Tx) error { t.Error("fn was called"); return nil })
	if fenced, ok := errors.AsType[*pglock.FencedError](err); !ok || fenced.Name != name+"a" {
		t.Errorf("error is %v, want the refusal of the first by name", err)
	}
	wantErr(t, c.InTxAll(t.Context(), nil, pass), pglock.ErrInvalidSequencer)
	wantErr(t, c.InTxAll(t.Context(), []pglock.Sequencer{{}}, pass), pglock.ErrInvalidSequencer)
}

func TestInTxAll_HoldsEveryTakeoverOff(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	a, b := acquire(t, c, name+"a", nil), acquire(t, c, name+"b", nil)
	err := c.InTxAll(t.Context(), []pglock.Sequencer{b.Sequencer(), a.Sequencer()}, func(pgx.Tx) error {
		for _, n := range []string{name + "a", name + "b"} {
			expire(t, pool, n)
			_, err := c.TryAcquire(t.Context(), n, nil)
			if held, ok := errors.AsType[*pglock.HeldError](err); !ok || !held.Fenced {
				t.Errorf("%s: error is %v, want it fenced", n, err)
			}
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestGetAndList_TellWhatIsHeld(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{Holder: "me"})
	if info, err := c.Get(t.Context(), name); err != nil || info.Held || info.Name != name || info.Token != 0 {
		t.Errorf("Get of a name that never was: %+v, %v", info, err)
	}
	l := acquire(t, c, name+"/1", &pglock.AcquireOptions{Data: []byte(`{"a": 1}`)})
	free := acquire(t, c, name+"/2", nil)
	release(t, free)
	info, err := c.Get(t.Context(), name+"/1")
	if err != nil || !info.Held || info.Holder != "me" || info.Token != l.Token() || info.Transitions != 1 ||
		string(info.Data) != `{"a": 1}` || info.Left <= 0 || info.ExpiresAt.Before(info.AcquiredAt) {
		t.Errorf("Get: %+v, %v", info, err)
	}
	for _, c2 := range []struct {
		opts pglock.ListOptions
		want int
	}{
		{pglock.ListOptions{Prefix: name}, 1},
		{pglock.ListOptions{Prefix: name, Free: true}, 2},
		{pglock.ListOptions{Prefix: name, Free: true, Limit: 1}, 1},
		{pglock.ListOptions{Prefix: name, Free: true, After: name + "/1"}, 1},
		{pglock.ListOptions{Prefix: name + "%"}, 0},
	} {
		list, err := c.List(t.Context(), &c2.opts)
		if err != nil || len(list) != c2.want {
			t.Errorf("List(%+v) has %d names (%v), want %d", c2.opts, len(list), err, c2.want)
		}
	}
	_, err = c.Get(t.Context(), "")
	wantErr(t, err, pglock.ErrInvalidName)
	_, err = c.List(t.Context(), &pglock.ListOptions{Limit: -1})
	wantErr(t, err, pglock.ErrInvalidConfig)
}

func TestList_OfAllThatIsHeld(t *testing.T) {
	t.Parallel()
	c := client(t, pgtest.Connect(t, pgtest.Database(t)), pglock.Config{})
	acquire(t, c, "b", nil)
	acquire(t, c, "a", nil)
	release(t, acquire(t, c, "free", nil))
	list, err := c.List(t.Context(), nil)
	if err != nil || len(list) != 2 || list[0].Name != "a" || list[1].Name != "b" {
		t.Errorf("List: %+v, %v; want a and b", list, err)
	}
}

// The names with a prefix are a range of the index, whose end must leave none out.
func TestList_PrefixIsWhatNamesBeginWith(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	c := client(t, pool, pglock.Config{})
	for _, suffix := range []string{"a", "a~", "a\u00e9", "a\U0010ffff", "a\x7f", "b", "~x", "\u00e9x", " x", "!"} {
		acquire(t, c, name+suffix, nil)
	}
	for suffix, want := range map[string]int{"": 10, "a": 5, "a~": 1, "b": 1, "~": 1, "\u00e9": 1, " ": 1, "a\u00e9": 1, "c": 0, "%": 0} {
		list, err := c.List(t.Context(), &pglock.ListOptions{Prefix: name + suffix})
		if err != nil || len(list) != want {
			t.Errorf("%d names begin with %q (%v), want %d", len(list), suffix, err, want)
		}
	}
}

// Also behind lists of all, from which a prepared statement would have a plan for any
// prefix.
func TestList_WithAPrefixReadsNoOtherNames(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	for _, sql := range []string{
		`INSERT INTO gatepost.leases (name, token, nonce, holder, acquired_at, renewed_at, expires_at, transitions)
			SELECT 'many/' || lpad(i::text, 5, '0'), i, CASE WHEN i < 200 THEN gen_random_uuid() END, CASE WHEN i < 200 THEN 'h' END, now(), now(), now() + interval '1 hour', 1 FROM generate_series(1, 20000) AS i`,
		"VACUUM ANALYZE gatepost.leases", "SELECT pg_stat_reset()",
	} {
		if _, err := owner(t, pool).Exec(t.Context(), sql); err != nil {
			t.Fatal(err)
		}
	}
	c := client(t, pool, pglock.Config{})
	for i := range 20 {
		opts, want := pglock.ListOptions{}, 199
		if i >= 10 {
			opts.Prefix, want = "many/0001", 10
		}
		if list, err := c.List(t.Context(), &opts); err != nil || len(list) != want {
			t.Fatalf("%d names, %v, want %d", len(list), err, want)
		}
	}
	pool.Reset() // a session's counts are there when it has ended
	read := int64(0)
	eventually(t, "the server's statistics", 20*time.Second, func() bool {
		read = value[int64](t, pool, "SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_user_tables WHERE relid = 'gatepost.leases'::regclass")
		return read > 0
	})
	if read > 10*20_000+1000 {
		t.Errorf("ten lists of all names, and ten of ten, read %d", read)
	}
}
