package main

import (
	"context"
	"encoding/json"
	"errors"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/operator"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// clientOn is a client of a holder, closed when the test ends.
func clientOn(t *testing.T, pool *pgxpool.Pool, cfg pglock.Config) *pglock.Client {
	t.Helper()
	client, err := pglock.New(pool, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	return client
}

func acquired(t *testing.T, client *pglock.Client, name string) *pglock.Lease {
	t.Helper()
	lease, err := client.TryAcquire(t.Context(), name, nil)
	if err != nil {
		t.Fatal(err)
	}
	return lease
}

func TestRelease_TakesALeaseFromALiveHolder(t *testing.T) {
	t.Parallel()
	pool, name := pgtest.Pool(t), pgtest.Name(t)
	lease := acquired(t, clientOn(t, pool, pglock.Config{Holder: "web-1", TTL: time.Hour}), name)
	direct := pgtest.Connect(t, pgtest.Direct(t, pgtest.URL(t))) // hears
	other := clientOn(t, pool, pglock.Config{Holder: "web-2", PollInterval: time.Hour, Control: direct})
	got := make(chan *pglock.Lease, 1)
	go func() {
		next, err := other.Acquire(t.Context(), name, nil)
		if err != nil {
			t.Error(err)
		}
		got <- next
	}()
	await(t, "a waiter", func() bool {
		var waits bool
		err := pool.QueryRow(t.Context(), "SELECT count(*) > 0 FROM gatepost.waiters WHERE name = $1", name).Scan(&waits)
		return err == nil && waits
	})
	r := gatepost(t, pgtest.URL(t), "release", name, "--token", tokenText(lease.Token()))
	want(t, r, 0, "is free; web-1, who had it for ")

	select { // by the poll, and by the expiry, it would be an hour
	case next := <-got:
		if next == nil || next.Token() <= lease.Token() {
			t.Errorf("the waiter got %v", next)
		}
	case <-time.After(30 * time.Second):
		t.Fatal("nobody woke the waiter")
	}
	err := lease.InTx(t.Context(), func(pgx.Tx) error { return errors.New("the fence let the last holder pass") })
	if !errors.Is(err, pglock.ErrFenced) && !errors.Is(err, pglock.ErrLost) {
		t.Error(err)
	}
	_ = lease.Renew(t.Context()) // as the next heartbeat would
	<-lease.Done()
	if err := lease.Err(); !errors.Is(err, pglock.ErrSuperseded) {
		t.Errorf("the holder learns %v", err)
	}
}

func TestRelease_MeansOneAcquisitionOnly(t *testing.T) {
	t.Parallel()
	want(t, gatepost(t, pgtest.URL(t), "release", "", "--token", "4"), 2, "invalid lease name: it is empty")
	url, pool, name := pgtest.URL(t), pgtest.Pool(t), pgtest.Name(t)
	client := clientOn(t, pool, pglock.Config{Holder: "web-1"})
	want(t, gatepost(t, url, "release", name, "--token", "7"), 1, "was never acquired")
	lease := acquired(t, client, name)
	token := tokenText(lease.Token())
	want(t, gatepost(t, url, "release", name), 2, "Give --token, as printed by: gatepost show "+name)
	want(t, gatepost(t, url, "release", name, "--token", "0"), 2, "Give --token")
	want(t, gatepost(t, url, "release", name, "--token", token, "--by", strings.Repeat("b", 1001)), 2, "1000 bytes")
	want(t, gatepost(t, url, "release", name, "--token", token, "--reason", "\xff"), 2, "is not text in UTF-8")
	want(t, gatepost(t, url, "release", name, "--token", "7"), 1, "nothing is changed: token 7 is not the current one of "+strconv.Quote(name)+": that is "+token+", of web-1")
	if err := lease.Renew(t.Context()); err != nil {
		t.Errorf("a refused release harmed the lease: %v", err)
	}
	if err := lease.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
	want(t, gatepost(t, url, "release", name, "--token", "7"), 1, "that was "+token+", and the name is free")
	want(t, gatepost(t, url, "release", name, "--token", token), 0, "was free already, for ")

	put(t, pool, leaseRow{name: name + "/lapsed", holder: "web-2", token: 9, age: time.Hour, left: -485 * time.Second})
	want(t, gatepost(t, url, "release", name+"/lapsed", "--token", "9"), 0, "web-2 had let it expire 8 min ")
}

func TestRelease_LeavesInTheRowWhoDidIt(t *testing.T) {
	t.Parallel()
	url, pool, name := pgtest.URL(t), pgtest.Pool(t), pgtest.Name(t)
	lease := acquired(t, clientOn(t, pool, pglock.Config{Holder: "web-1"}), name)
	token := tokenText(lease.Token())
	r := gatepost(t, url, "release", name, "--token", token, "--by", "alice", "--reason", "it hangs", "--json")
	var out struct {
		Name, Token, Holder, By, Role, Reason string
		Released                              bool
		At                                    time.Time
		LockedBy                              []any `json:"locked_by"`
	}
	if err := json.Unmarshal([]byte(r.stdout), &out); err != nil || r.code != 0 {
		t.Fatalf("it printed %q, %q (%v)", r.stdout, r.stderr, err)
	}
	if out.Name != name || out.Token != token || out.Holder != "web-1" || out.By != "alice" || out.Reason != "it hangs" ||
		out.Role == "" || !out.Released || time.Since(out.At).Abs() > time.Minute || out.LockedBy == nil {
		t.Errorf("it printed %+v", out)
	}
	var shown struct {
		Held bool
		Data struct {
			Audit map[string]string `json:"released_by_operator"`
		}
	}
	show := gatepost(t, url, "show", name, "--json").stdout
	if err := json.Unmarshal([]byte(show), &shown); err != nil {
		t.Fatalf("%q: %v", show, err)
	}
	a := shown.Data.Audit
	if shown.Held || a["by"] != "alice" || a["reason"] != "it hangs" || a["token"] != token || a["holder"] != "web-1" || a["role"] != out.Role || a["at"] == "" {
		t.Errorf("show prints %s", show)
	}
}

func TestRelease_WorksAtEachDefaultIsolation(t *testing.T) {
	t.Parallel()
	for i, level := range []string{"repeatable read", "serializable"} {
		url := pgtest.Database(t) // and no session of before
		pool := pgtest.Connect(t, url)
		execute(t, pgtest.Connect(t, pgtest.Owner(t, url)), `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_isolation = `+"''"+level+"''"+`', current_database()); END $$`)
		put(t, pool, leaseRow{name: level, holder: "h", token: int64(i) + 1, left: time.Hour})
		want(t, gatepost(t, url, "release", level, "--token", strconv.Itoa(i+1)), 0, "is free; h, who had it")
	}
}

func TestRelease_EndsTheTransactionsBehindTheFenceOfTheLastHolderOnly(t *testing.T) {
	t.Parallel()
	url, pool, name := pgtest.URL(t), pgtest.Pool(t), pgtest.Name(t)
	client := clientOn(t, pool, pglock.Config{Holder: "web-1"})
	lease := acquired(t, client, name)
	pid := strconv.Itoa(int(beginFenced(t, lease)))
	token := tokenText(lease.Token())
	r := gatepost(t, url, "release", name, "--token", token)
	want(t, r, 0, "the next holder waits for backend "+pid+" (")
	want(t, r, 0, "to end it: gatepost release "+name+" --token "+token+" --terminate")
	var held *pglock.HeldError
	if _, err := client.TryAcquire(t.Context(), name, nil); !errors.As(err, &held) || !held.Fenced {
		t.Errorf("the next holder is told %v", err)
	}
	r = gatepost(t, url, "release", name, "--token", token, "--terminate")
	want(t, r, 0, "was free already")
	want(t, r, 0, "backend "+pid)
	if !strings.Contains(r.stdout, ": ended\n") {
		t.Errorf("it printed %q", r.stdout)
	}

	next := acquired(t, client, name)
	var between time.Time
	if err := pool.QueryRow(t.Context(), "SELECT clock_timestamp()").Scan(&between); err != nil {
		t.Fatal(err)
	}
	tx, err := next.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = tx.Rollback(context.Background()) }()
	// As when the next holder came between the release and the look at what is in its way.
	lockers, err := operator.Lockers(t.Context(), pool, name)
	if err != nil || len(lockers) != 1 || !lockers[0].Since.After(between) {
		t.Fatalf("there are %+v (%v)", lockers, err)
	}
	if ending, err := lockers[0].Terminate(t.Context(), pool, between); ending != operator.EndingNone {
		t.Errorf("the next holder's backend is %q, %v", ending, err)
	}
	want(t, gatepost(t, url, "release", name, "--token", token, "--terminate"), 1, "nothing is changed")
	if err := tx.Commit(t.Context()); err != nil {
		t.Errorf("the next holder's transaction was ended: %v", err)
	}
}

func TestRelease_EndsABackendThatWaitsForCopyData(t *testing.T) {
	t.Parallel()
	url, pool, name := pgtest.URL(t), pgtest.Pool(t), pgtest.Name(t)
	client := clientOn(t, pool, pglock.Config{})
	lease := acquired(t, client, name)
	tx, err := lease.BeginTx(t.Context(), pgx.TxOptions{})
	if err != nil {
		t.Fatal(err)
	}
	execute(t, pool, "CREATE TABLE IF NOT EXISTS copied (n int)")
	reading, copied := make(chan struct{}), make(chan error, 1)
	over := make(chan struct{})
	go func() { // what a client does that was stopped in the middle
		_, err := tx.CopyFrom(context.Background(), pgx.Identifier{"copied"}, []string{"n"}, stuckSource{reading, over})
		copied <- err
	}()
	<-reading
	r := gatepost(t, url, "release", name, "--token", tokenText(lease.Token()), "--terminate")
	want(t, r, 0, ": ended\n")
	acquired(t, client, name)
	close(over)
	if err := <-copied; err == nil {
		t.Error("the COPY went through")
	}
	_ = tx.Rollback(context.Background())
}

// stuckSource gives no row.
type stuckSource struct{ reading, over chan struct{} }

func (s stuckSource) Next() bool           { close(s.reading); <-s.over; return false }
func (stuckSource) Values() ([]any, error) { return nil, nil }
func (stuckSource) Err() error             { return nil }

func TestRelease_SaysWhichRightIsMissing(t *testing.T) {
	t.Parallel()
	database := pgtest.Database(t)
	pool := pgtest.Connect(t, database)
	owner := pgtest.Connect(t, pgtest.Owner(t, database))
	role := "gatepost_test_release_" + strings.ToLower(pgtest.Name(t)[len(t.Name())+1:])
	execute(t, owner, `CREATE ROLE `+role+` LOGIN`)
	execute(t, owner, `GRANT CONNECT ON DATABASE `+owner.Config().ConnConfig.Database+` TO `+role)
	t.Cleanup(func() {
		for _, sql := range []string{"DROP OWNED BY " + role, "DROP ROLE " + role} {
			if _, err := owner.Exec(context.Background(), sql); err != nil {
				t.Error(err)
			}
		}
	})
	execute(t, owner, `GRANT USAGE ON SCHEMA gatepost TO `+role)
	execute(t, owner, `GRANT SELECT ON ALL TABLES IN SCHEMA gatepost TO `+role)
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	u.User = url.User(role)
	as := u.String()
	lease := acquired(t, clientOn(t, pool, pglock.Config{Holder: "web-1"}), "n")
	beginFenced(t, lease)
	token := tokenText(lease.Token())
	want(t, gatepost(t, as, "release", "n", "--token", token), 1, "permission denied for table leases (SQLSTATE 42501); ask the database's owner for that right")
	execute(t, owner, `GRANT UPDATE ON gatepost.leases, gatepost.waiters TO `+role)
	r := gatepost(t, as, "release", "n", "--token", token, "--terminate")
	want(t, r, 1, "a transaction of the last holder is still open")
	want(t, r, 1, "this role may not see or end it; use a member of pg_read_all_stats and pg_signal_backend")
	execute(t, owner, `GRANT pg_read_all_stats TO `+role)
	want(t, gatepost(t, as, "release", "n", "--token", token, "--terminate"), 1, "(SQLSTATE 42501)")
}
