package doctor_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
)

// acquired are leases of a client that ends with the test.
func acquired(t *testing.T, url string, names ...string) (leases []*pglock.Lease) {
	t.Helper()
	client, err := pglock.New(pgtest.Connect(t, url), pglock.Config{TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = client.Close(context.Background()) })
	for _, name := range names {
		lease, err := client.Acquire(t.Context(), name, nil)
		if err != nil {
			t.Fatal(err)
		}
		leases = append(leases, lease)
	}
	return leases
}

// fence begins a fenced transaction of the test's own, without limits.
func fence(t *testing.T, conn *pgx.Conn, leases ...*pglock.Lease) {
	t.Helper()
	if _, err := conn.Exec(t.Context(), "BEGIN"); err != nil {
		t.Fatal(err)
	}
	for _, lease := range leases {
		if err := pglock.Fence(t.Context(), tx{conn}, lease.Sequencer()); err != nil {
			t.Fatal(err)
		}
	}
}

// tx is a connection inside a transaction.
type tx struct{ *pgx.Conn }

// strict are options under which a fenced transaction is over its limit after 5 s, the
// grace of its COMMIT, and the test's own is backdated by waiting for no more.
func strict() doctor.Options {
	opts := patient()
	opts.FenceTimeout = -5 * time.Second // together with the grace: at once
	return opts
}

func TestFenced_FindsTransactionsBeyondTheirLimit(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	leases := acquired(t, url, "a", "b", "c")
	if got := found(examine(t, url, strict())); len(got) != 0 {
		t.Errorf("without a fence it found %q", got)
	}
	one, two := connect(t, url), connect(t, url)
	fence(t, one, leases[0], leases[1])
	if got := found(examine(t, url, patient())); len(got) != 0 {
		t.Errorf("of a young one it found %q", got)
	}
	r := examine(t, url, strict())
	if got := found(r); !slices.Equal(got, []string{"fenced weakens lease a"}) {
		t.Fatalf("it found %q", got)
	}
	f := result(t, r, "fenced").Findings[0]
	for _, part := range []string{fmt.Sprintf("backend %d (user postgres", one.PgConn().PID()), "and 1 more", "idle in transaction for "} {
		if !strings.Contains(f.Text, part) {
			t.Errorf("it says %q, without %q", f.Text, part)
		}
	}
	if want := fmt.Sprintf("gatepost release a --token %d --terminate", leases[0].Token()); f.Remedy[0] != want {
		t.Errorf("the remedy is %q, want %q", f.Remedy[0], want)
	}
	// Two on one lease are a set, of which the row has the number.
	fence(t, two, leases[1])
	got := found(examine(t, url, strict()))
	if want := []string{"fenced weakens lease a", "fenced weakens lease b"}; !slices.Equal(got, want) {
		t.Errorf("of two it found %q", got)
	}
	// A reader's transaction is none of them.
	if _, err := one.Exec(t.Context(), "ROLLBACK; BEGIN; SELECT txid_current(); SELECT count(*) FROM gatepost.leases"); err != nil {
		t.Fatal(err)
	}
	if got := found(examine(t, url, strict())); !slices.Equal(got, []string{"fenced weakens lease b"}) {
		t.Errorf("of a fence and a reader it found %q", got)
	}
}

// A transaction's age is compared with FenceTimeout and the grace of its COMMIT, as long
// as they are, and no shorter.
func TestFenced_ComparesWithTheLimit(t *testing.T) {
	t.Parallel()
	url, limit := healthy.database(t), 200*time.Millisecond
	conn := connect(t, url)
	fence(t, conn, acquired(t, url, "a")...)
	until(t, "the limit", func() bool {
		var past bool
		if err := conn.QueryRow(t.Context(), "SELECT clock_timestamp() - now() > $1::interval", limit.String()).Scan(&past); err != nil {
			t.Fatal(err)
		}
		return past
	})
	opts := strict()
	opts.FenceTimeout += limit
	if got := found(examine(t, url, opts)); !slices.Equal(got, []string{"fenced weakens lease a"}) {
		t.Errorf("of one that is past its limit it found %q", got)
	}
	opts.FenceTimeout += time.Hour
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("of one that has an hour more it found %q", got)
	}
}

func TestFenced_FindsAStoppedCopy(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	run(t, url, "CREATE TABLE orders (id bigint)")
	lease := acquired(t, url, "import")[0]
	conn := connect(t, url)
	fence(t, conn, lease)
	stop := make(chan struct{})
	copied := make(chan error, 1)
	go func() {
		_, err := conn.PgConn().CopyFrom(t.Context(), stopped{stop}, "COPY orders FROM STDIN")
		copied <- err
	}()
	defer func() { close(stop); <-copied }()
	var f doctor.Finding
	until(t, "the COPY", func() bool {
		r := examine(t, url, strict())
		if got := found(r); !slices.Equal(got, []string{"fenced weakens lease import"}) {
			t.Fatalf("it found %q", got)
		}
		f = result(t, r, "fenced").Findings[0]
		return strings.Contains(f.Text, "in a COPY whose client sends nothing, which no timeout ends")
	})
	if !strings.Contains(f.Remedy[0], "--terminate") {
		t.Errorf("the remedy is %q", f.Remedy)
	}
}

// stopped is a source that gives nothing until it is closed.
type stopped struct{ until chan struct{} }

func (s stopped) Read([]byte) (int, error) {
	<-s.until
	return 0, context.Canceled
}

func TestPrepared_FindsWhatHoldsALease(t *testing.T) {
	t.Parallel()
	url := faulty.database(t)
	leases := acquired(t, url, "a", "b")
	run(t, url, "CREATE TABLE other (n int)", "BEGIN; INSERT INTO other VALUES (1); PREPARE TRANSACTION 'elsewhere'")
	t.Cleanup(func() { _ = execute(context.Background(), url, "ROLLBACK PREPARED 'elsewhere'") })
	if got := found(examine(t, url, patient())); !slices.Equal(got, faults) {
		t.Errorf("of one without a lease it found %q", got)
	}
	conn := connect(t, url)
	fence(t, conn, leases[1])
	if _, err := conn.Exec(t.Context(), "PREPARE TRANSACTION E'it''s \\\\ left'"); err != nil {
		t.Fatal(err)
	}
	r := examine(t, url, patient())
	if got, want := found(r), slices.Insert(slices.Clone(faults), 3, "prepared weakens lease b"); !slices.Equal(got, want) {
		t.Errorf("it found %q, want %q", got, want)
	}
	f := result(t, r, "prepared").Findings[1]
	if !strings.Contains(f.Text, `The prepared transaction "it's \\ left" of postgres has locked it for `) || f.Remedy[0] != `ROLLBACK PREPARED E'it''s \\ left';` {
		t.Errorf("it says %+v", f)
	}
	run(t, url, f.Remedy[0])
	if got := found(examine(t, url, patient())); !slices.Equal(got, faults) {
		t.Errorf("after the remedy it finds %q", got)
	}
	// Two are two, though neither has a process.
	for i, gid := range []string{"one", "two"} {
		fence(t, conn, leases[i])
		if _, err := conn.Exec(t.Context(), "PREPARE TRANSACTION '"+gid+"'"); err != nil {
			t.Fatal(err)
		}
	}
	if got := found(examine(t, url, patient())); !slices.Contains(got, "prepared weakens lease a") || !slices.Contains(got, "prepared weakens lease b") {
		t.Errorf("of two it found %q", got)
	}
	run(t, url, "ROLLBACK PREPARED 'one'", "ROLLBACK PREPARED 'two'")
	// An old one keeps old rows too, whatever it has locked.
	opts := patient()
	opts.Limits.Open = time.Nanosecond * 1000
	if got := found(examine(t, url, opts)); !slices.Contains(got, `horizon note prepared transaction "elsewhere" (user postgres)`) {
		t.Errorf("it found %q", got)
	}
}
