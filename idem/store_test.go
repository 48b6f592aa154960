package idem_test

import (
	"errors"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestNew_RefusesWhatCantBe(t *testing.T) {
	t.Parallel()
	pool := new(pgxpool.Pool) // New asks nothing of it
	if _, err := idem.New(nil, idem.Config{}); !errors.Is(err, idem.ErrInvalidConfig) {
		t.Errorf("without a pool: %v, want ErrInvalidConfig", err)
	}
	for what, c := range map[string]struct {
		cfg  idem.Config
		good bool
	}{
		"zero":                             {idem.Config{}, true},
		"retention of 999ms":               {idem.Config{Retention: 999 * time.Millisecond}, false},
		"retention of 1s":                  {idem.Config{Retention: time.Second}, true},
		"retention below 0":                {idem.Config{Retention: -time.Hour}, false},
		"retries as long as the retention": {idem.Config{Retention: time.Hour, LongestRetry: time.Hour}, true},
		"retries beyond the retention":     {idem.Config{Retention: time.Hour, LongestRetry: time.Hour + 1}, false},
		"retries beyond the default":       {idem.Config{LongestRetry: 48 * time.Hour}, true}, // which becomes longer
		"retries below 0":                  {idem.Config{LongestRetry: -1}, false},
		"lease of 99ms":                    {idem.Config{Lease: 99 * time.Millisecond}, false},
		"lease of 100ms":                   {idem.Config{Lease: 100 * time.Millisecond}, true},
		"lease below 0":                    {idem.Config{Lease: -time.Hour}, false},
		"bodies of 256 MiB":                {idem.Config{MaxBody: 1 << 28}, true},
		"bodies beyond 256 MiB":            {idem.Config{MaxBody: 1<<28 + 1}, false},
		"bodies below 0":                   {idem.Config{MaxBody: -1}, false},
	} {
		_, err := idem.New(pool, c.cfg)
		if (err == nil) != c.good || err != nil && !errors.Is(err, idem.ErrInvalidConfig) {
			t.Errorf("%s: %v, want it to be valid: %t", what, err, c.good)
		}
	}
}

// What the documentation of Config says.
func TestNew_DefaultsAreThoseThatAreDocumented(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	near := func(got, want time.Duration) bool { return (got - want).Abs() < time.Minute }
	for retries, retention := range map[time.Duration]time.Duration{0: 24 * time.Hour, time.Hour: 24 * time.Hour, 72 * time.Hour: 72 * time.Hour} {
		s, key := holder(t, pool, idem.Config{LongestRetry: retries}), newKey(t)
		if s.MaxBody() != 1<<20 {
			t.Errorf("bodies of %d bytes are stored, want 1 MiB", s.MaxBody())
		}
		a := claim(t, s, key)
		if left := rowOf(t, pool, key).LeaseLeft; left < 30*time.Second || left > time.Minute {
			t.Errorf("the claim has %s left, of a minute", left)
		}
		if err := a.Finish(t.Context(), answer, func(pgx.Tx) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if left := rowOf(t, pool, key).Left; !near(left, retention) && !near(left, retention+time.Minute) {
			t.Errorf("with retries for %s the record has %s left, want %s", retries, left, retention)
		}
	}
}
