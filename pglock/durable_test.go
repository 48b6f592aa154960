package pglock_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/gatepost/gatepost/pglock"
)

// S1 and rules A5 and A6, as the rows' own triggers see them. A release is asynchronous,
// in both its statements: who is granted the lease after it makes it durable.
func TestAcquireAndRenew_AreDurableAndReadCommitted(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	admin := pgtest.Connect(t, url)
	exec(t, admin, `CREATE TABLE seen (what text)`)
	exec(t, admin, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.seen VALUES (concat_ws(',', CASE WHEN NEW.nonce IS NULL THEN 'release' ELSE TG_OP END,
			current_setting('synchronous_commit'), current_setting('transaction_isolation')));
		RETURN NEW; END $$`)
	exec(t, owner(t, admin), `CREATE TRIGGER see BEFORE INSERT OR UPDATE ON gatepost.leases FOR EACH ROW EXECUTE FUNCTION see()`)

	for set, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		for _, isolation := range []string{"serializable", "read committed"} {
			exec(t, admin, `TRUNCATE seen`)
			pool := poolWith(t, url, setting("synchronous_commit", set), setting("default_transaction_isolation", isolation))
			c := client(t, pool, pglock.Config{})
			name := pgtest.Name(t)
			release(t, acquire(t, c, name, nil)) // INSERT
			second := acquire(t, c, name, nil)   // UPDATE
			if err := second.Renew(t.Context()); err != nil {
				t.Fatal(err)
			}
			release(t, second) // by now it knows what the sessions are
			got := value[string](t, admin, `SELECT string_agg(what, ' ' ORDER BY what) FROM seen`)
			tail := "," + want + ",read committed"
			if got != "INSERT"+tail+" UPDATE"+tail+" UPDATE"+tail+" release,off,read committed release,off,"+isolation {
				t.Errorf("with synchronous_commit=%s: %s", set, got)
			}
			if left := value[string](t, pool, `SHOW synchronous_commit`); left != set {
				t.Errorf("a session's synchronous_commit is %s, want %s as before", left, set)
			}
		}
	}
}
