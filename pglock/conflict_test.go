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

// What a release's statement did counts when it was committed. One that wasn't is told of,
// and goes on behind.
func TestRelease_IsOneWhenItIsCommitted(t *testing.T) {
	t.Parallel()
	pool := pgtest.Connect(t, pgtest.Database(t))
	exec(t, pool, `CREATE SEQUENCE hits`)
	exec(t, pool, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		IF nextval('public.hits') = 1 THEN RAISE EXCEPTION 'no'; END IF;
		RETURN NULL; END $$`)
	exec(t, owner(t, pool), `CREATE CONSTRAINT TRIGGER refuse AFTER UPDATE ON gatepost.leases DEFERRABLE INITIALLY DEFERRED
		FOR EACH ROW WHEN (old.nonce IS NOT NULL AND new.nonce IS NULL) EXECUTE FUNCTION refuse()`)
	l := acquire(t, client(t, pool, pglock.Config{TTL: time.Hour}), pgtest.Name(t), nil)
	if err := l.Release(t.Context()); codeOf(err) != "P0001" {
		t.Errorf("error is %v, want the one of COMMIT", err)
	}
	eventually(t, "the release behind", 10*time.Second, func() bool { return !row(t, pool, l.Name()).Held })
}
