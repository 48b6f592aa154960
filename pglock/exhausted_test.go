package pglock_test

import (
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// A server whose disk is full, or that has no memory left, is one that may come back: who
// waits goes on without a place in the queue, and gets the lease by polling.
func TestAcquire_WaitsOnWhileTheServerIsExhausted(t *testing.T) {
	t.Parallel()
	for what, state := range map[string]string{"disk full": "53100", "out of memory": "53200", "an I/O error": "58030"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			pool, name := pgtest.Connect(t, pgtest.Database(t)), pgtest.Name(t)
			exec(t, pool, `CREATE SEQUENCE public.refused`)
			exec(t, pool, `CREATE FUNCTION public.refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
				PERFORM nextval('public.refused');
				RAISE EXCEPTION USING ERRCODE = '`+state+`'; END $$`)
			exec(t, owner(t, pool), `CREATE TRIGGER refuse BEFORE INSERT ON gatepost.waiters FOR EACH ROW EXECUTE FUNCTION public.refuse()`)
			cfg := pglock.Config{TTL: time.Minute, PollInterval: 50 * time.Millisecond}
			l := acquire(t, client(t, pool, cfg), name, nil)
			waiting := granted(t, client(t, pool, cfg), name)
			eventually(t, "a second try to be registered", 20*time.Second, func() bool {
				return t.Failed() || value[int](t, pool, `SELECT last_value FROM public.refused`) > 1
			})
			release(t, l)
			next := within(t, 20*time.Second, waiting)
			if next == nil {
				return
			}
			if next.Token() <= l.Token() {
				t.Errorf("token %d after %d", next.Token(), l.Token())
			}
			release(t, next)
		})
	}
}
