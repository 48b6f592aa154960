package idem_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// A standby is no database for a claim, and connections that lead to one are not kept:
// they would refuse for as long as they live.
func TestStandby_IsUnavailable(t *testing.T) {
	t.Parallel()
	f := pgtest.NewFailover(t)
	effects, pool := newLedger(t, f.Primary), f.Pool(t, 2)
	s := holder(t, pool, idem.Config{Lease: 30 * time.Second})
	for what, call := range map[string]func(key idem.Key) error{
		"Do": func(key idem.Key) error {
			_, err := s.Do(t.Context(), key, fp, nil, effects.write(key.Key, created, nil))
			return err
		},
		"Begin": func(key idem.Key) error {
			_, err := s.Begin(t.Context(), key, fp)
			return err
		},
		"Forget": func(key idem.Key) error { return s.Forget(t.Context(), key) },
	} {
		key := newKey(t)
		f.Switch(true)
		pool.Reset()
		err := call(key)
		wantErr(t, err, idem.ErrUnavailable)
		f.Switch(false)
		waitUntil(t, what+" after it", func() bool {
			err = call(key)
			return what == "Forget" || err == nil
		})
		if what == "Forget" {
			wantErr(t, err, idem.ErrNotFound)
		}
	}
}

func TestStandby_AttemptsOutliveAFailover(t *testing.T) {
	t.Parallel()
	f := pgtest.NewFailover(t)
	effects, key := newLedger(t, f.Primary), newKey(t)
	// A machine that is busy needs seconds for Finish, whose tries each make a connection.
	a := claim(t, holder(t, f.Pool(t, 2), idem.Config{Lease: 20 * time.Second}), key)
	renewed(t, f.Primary, key, 1)
	f.Break(t)
	waitUntil(t, "a heartbeat that meets the standby", func() bool { return f.Refusals() > 0 })
	write := func(tx pgx.Tx) error {
		_, err := tx.Exec(t.Context(), "INSERT INTO "+effects.name+" VALUES ('finish')")
		return err
	}
	wantErr(t, a.Finish(t.Context(), created, write), idem.ErrUnavailable)
	f.Switch(false)
	renewed(t, f.Primary, key, 1)
	waitUntil(t, "Finish", func() bool { return a.Finish(t.Context(), created, write) == nil })
	effects.want(t, "finish", 1)
}
