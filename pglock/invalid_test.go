package pglock_test

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// nowhere is a pool that fails the test when anything is sent.
func nowhere(t *testing.T) *pgxpool.Pool {
	t.Helper()
	return poolWith(t, pgtest.URL(t), func(cfg *pgxpool.Config) {
		cfg.BeforeConnect = func(context.Context, *pgx.ConnConfig) error {
			t.Error("a connection was made")
			return errors.New("none of these")
		}
	})
}

func TestNew_RefusesAnInvalidConfig(t *testing.T) {
	t.Parallel()
	pool := nowhere(t)
	for what, cfg := range map[string]pglock.Config{
		"long holder":             {Holder: strings.Repeat("x", 256)},
		"holder with NUL":         {Holder: "a\x00b"},
		"holder that isn't UTF-8": {Holder: "a\xff"},
		"TTL too short":           {TTL: time.Microsecond},
		"negative TTL":            {TTL: -time.Second},
		"TTL too long":            {TTL: 169 * time.Hour},
		"negative margin":         {SafetyMargin: -1},
		"margin of the TTL":       {TTL: time.Second, SafetyMargin: time.Second},
		"negative interval":       {RenewEvery: -1},
		"interval too long":       {TTL: 10 * time.Second, RenewEvery: 9 * time.Second},
		"negative fence":          {FenceTimeout: -1},
		"fence below 1 ms":        {FenceTimeout: time.Microsecond},
		"negative poll":           {PollInterval: -1},
	} {
		if _, err := pglock.New(pool, cfg); !errors.Is(err, pglock.ErrInvalidConfig) {
			t.Errorf("%s: %v", what, err)
		}
	}
	_, err := pglock.New(nil, pglock.Config{})
	wantErr(t, err, pglock.ErrInvalidConfig)
	client(t, pool, pglock.Config{}) // starts and sends nothing
}

func TestAcquire_RefusesInvalidArgumentsWithoutSending(t *testing.T) {
	t.Parallel()
	c := client(t, nowhere(t), pglock.Config{})
	all := func(name string, opts *pglock.AcquireOptions, want error) {
		t.Helper()
		_, err := c.TryAcquire(t.Context(), name, opts)
		wantErr(t, err, want)
		_, err = c.Acquire(t.Context(), name, opts)
		wantErr(t, err, want)
		wantErr(t, c.Do(t.Context(), name, opts, nil), want)
	}
	for _, name := range []string{"", strings.Repeat("x", 256), strings.Repeat("é", 128), "a\x00b", "a\xff", "\xed\xa0\x80"} {
		all(name, nil, pglock.ErrInvalidName)
	}
	for _, opts := range []pglock.AcquireOptions{
		{TTL: -1}, {TTL: time.Microsecond}, {TTL: 168*time.Hour + 1},
		{Data: json.RawMessage(`{`)}, {Data: json.RawMessage(`nil`)}, {Data: json.RawMessage("\"\xff\"")},
		{Data: json.RawMessage(`"` + strings.Repeat("x", 65536) + `"`)},
	} {
		all("x", &opts, pglock.ErrInvalidConfig)
	}
}

// What JSON allows and jsonb doesn't is still the caller's mistake.
func TestAcquire_DataThatJSONBRefusesIsInvalid(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.URL(t), maxConns(1))
	c := client(t, pool, pglock.Config{})
	for what, data := range map[string]string{
		"NUL": `"\u0000"`, "half a surrogate": `"\ud800"`, "huge number": `1e999999`,
		"longer when stored": `[` + strings.Repeat(`1,`, 30_000) + `1]`,
	} {
		_, err := c.TryAcquire(t.Context(), pgtest.Name(t), &pglock.AcquireOptions{Data: json.RawMessage(data)})
		if !errors.Is(err, pglock.ErrInvalidConfig) {
			t.Errorf("%s: %v", what, err)
		}
		if _, ok := errors.AsType[*pgconn.PgError](err); !ok {
			t.Errorf("%s: the server's error is out of reach", what)
		}
	}
	acquire(t, c, pgtest.Name(t), nil) // and the connection is usable
}

func TestNotMigrated_IsNamedWithItsRemedy(t *testing.T) {
	t.Parallel()
	pool := poolWith(t, pgtest.EmptyDatabase(t), maxConns(1))
	c := client(t, pool, pglock.Config{})
	seq := parsed(t, "v1:exclusive:0:1:"+aNonce+":x")
	_, acquired := c.TryAcquire(t.Context(), "x", nil)
	for _, err := range []error{
		acquired, c.InTx(t.Context(), seq, nothing),
		pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, seq) }),
	} {
		wantErr(t, err, pglock.ErrNotMigrated)
		if !strings.Contains(err.Error(), "gatepost migrate up") {
			t.Errorf("error is %q, want the remedy in it", err)
		}
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "42P01" && pgErr.Code != "3F000" {
			t.Errorf("error is %v, want the server's in it", err)
		}
	}
}

// A schema of before the functions.
func TestNotMigrated_IsAlsoWhatIsTooOld(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	l := acquire(t, client(t, pool, pglock.Config{}), pgtest.Name(t), nil)
	exec(t, owner(t, pool), `DROP FUNCTION gatepost.try_fence(text, integer, bigint, uuid)`)
	err := pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return pglock.Fence(t.Context(), tx, l.Sequencer()) })
	wantErr(t, err, pglock.ErrNotMigrated)
}
