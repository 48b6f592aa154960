package pglock_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// A deadlock's victim is told to try again, and does: it is no reason to go without a
// lease, or to leave one behind.
func TestConflict_IsTriedAgain(t *testing.T) {
	t.Parallel()
	for _, state := range []string{"40001", "40P01"} {
		pool := pgtest.Connect(t, pgtest.Database(t))
		exec(t, pool, `CREATE SEQUENCE hits`)
		exec(t, pool, `CREATE FUNCTION conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
			IF nextval('public.hits') = 1 THEN RAISE EXCEPTION 'met another' USING ERRCODE = '`+state+`'; END IF;
			RETURN NEW; END $$`)
		exec(t, owner(t, pool), `CREATE TRIGGER conflict BEFORE INSERT OR UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION conflict()`)
		c, name := client(t, pool, pglock.Config{TTL: time.Hour}), pgtest.Name(t)
		var l *pglock.Lease
		acquires := func() (err error) {
			l, err = c.TryAcquire(t.Context(), name, nil)
			return err
		}
		for _, step := range []struct {
			what string
			do   func() error
		}{
			{"the first grant", acquires},
			{"a renewal", func() error { return l.Renew(t.Context()) }},
			{"a release", func() error { return l.Release(t.Context()) }},
			{"a grant", acquires},
		} {
			exec(t, pool, `ALTER SEQUENCE hits RESTART`)
			if err := step.do(); err != nil {
				t.Fatalf("%s that met %s: %v", step.what, state, err)
			}
			if hits := value[int](t, pool, `SELECT last_value FROM hits`); hits < 2 {
				t.Errorf("%s met nothing", step.what)
			}
		}
	}
}
