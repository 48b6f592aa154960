package idem_test

import (
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// Effects outside the database follow a claim and stand behind an output, so these
// outlive a crash of the server, however it is set; a stronger setting is left.
func TestLeaseMode_IsDurable(t *testing.T) {
	t.Parallel()
	url := pgtest.Database(t)
	admin := pgtest.Connect(t, url)
	exec(t, admin, `CREATE TABLE seen (what text)`)
	exec(t, admin, `CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
		INSERT INTO public.seen VALUES (concat_ws(' ', TG_ARGV[0], TG_OP, current_setting('synchronous_commit')));
		RETURN NULL; END $$`)
	for _, of := range []string{"keys", "steps"} {
		exec(t, pgtest.Connect(t, pgtest.Owner(t, url)), `CREATE CONSTRAINT TRIGGER see AFTER INSERT OR UPDATE ON gatepost.idempotency_`+of+` DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see('`+of+`')`)
	}
	unseen := poolWith(t, pgtest.Owner(t, url), setting("session_replication_role", "replica"))
	for set, want := range map[string]string{"off": "on", "local": "on", "remote_apply": "remote_apply"} {
		exec(t, admin, `TRUNCATE seen`)
		pool := poolWith(t, url, setting("synchronous_commit", set))
		key, s := newKey(t), holder(t, pool, idem.Config{Lease: short})
		claim(t, s, key)
		renewed(t, admin, key, 1)
		lapse(t, unseen, key)
		a := claim(t, s, key)
		if _, err := a.Step(t.Context(), "s", func(pgx.Tx) ([]byte, error) { return nil, nil }); err != nil {
			t.Fatal(err)
		}
		finish(t, a)
		got := value[string](t, admin, `SELECT string_agg(DISTINCT what, ',' ORDER BY what) FROM seen`)
		if want := "keys INSERT " + want + ",keys UPDATE " + want + ",steps INSERT " + want; got != want {
			t.Errorf("with synchronous_commit=%s: %s, want %s", set, got, want)
		}
	}
}
