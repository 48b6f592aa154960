package pgtest_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// What these tests say holds with and without each switch; TestSwitches runs them with.

func TestSwitch_ThePoolerIsBetweenAndDirectGoesPast(t *testing.T) {
	t.Parallel()
	for what, url := range map[string]string{"shared": pgtest.URL(t), "own": pgtest.Database(t)} {
		if got := isSession(t, url); got == pgtest.Pooled() {
			t.Errorf("%s: a connection is told its backend: %t", what, got)
		}
		if !isSession(t, pgtest.Direct(t, url)) || !isSession(t, pgtest.Owner(t, url)) {
			t.Errorf("%s: a direct connection isn't one", what)
		}
		if !isSession(t, url+"&lock_timeout=7s") && !pgtest.Pooled() {
			t.Errorf("%s: a connection with a setting isn't one", what)
		}
	}
	if !isSession(t, pgtest.EmptyDatabase(t)) {
		t.Error("a database that is to be migrated is behind a pooler")
	}
}

// isSession says whether a connection's backend is the one that it was told of.
func isSession(t *testing.T, url string) (same bool) {
	t.Helper()
	err := pgx.BeginFunc(t.Context(), pgtest.Connect(t, url), func(tx pgx.Tx) error {
		same = pgtest.Backend(t, tx) == tx.Conn().PgConn().PID()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return same
}

func TestSwitch_ACreatorMayMakeSchemas(t *testing.T) {
	t.Parallel()
	url := pgtest.Creator(t, pgtest.Database(t))
	if got := isSession(t, url); got == pgtest.Pooled() {
		t.Errorf("a connection is told its backend: %t", got)
	}
	if _, err := pgtest.Connect(t, url).Exec(t.Context(), "CREATE SCHEMA more"); err != nil {
		t.Error(err)
	}
}

func TestSwitch_TheRoleHasItsGrantsAndNoMore(t *testing.T) {
	t.Parallel()
	for what, url := range map[string]string{"shared": pgtest.URL(t), "own": pgtest.Database(t)} {
		for _, c := range []struct {
			sql   string
			owner bool // only the owner may
		}{
			{"CREATE TABLE " + pgx.Identifier{pgtest.Name(t)}.Sanitize() + " ()", false},
			{"DELETE FROM gatepost.waiters WHERE name = ''", false},
			{"CREATE TEMPORARY TABLE x ()", false},
			{"DELETE FROM gatepost.fences WHERE resource = ''", true},
			{"ALTER TABLE gatepost.leases SET (autovacuum_enabled = true)", true},
			{"CREATE SCHEMA more", true},
		} {
			err := pgx.BeginFunc(t.Context(), pgtest.Connect(t, url), func(tx pgx.Tx) error {
				_, err := tx.Exec(t.Context(), c.sql)
				if err == nil {
					err = tx.Rollback(t.Context())
				}
				return err
			})
			if refused := err != nil && strings.Contains(err.Error(), "42501"); refused != (c.owner && pgtest.AsRole()) {
				t.Errorf("%s: %s: %v", what, c.sql, err)
			}
			if c.owner {
				if err := pgx.BeginFunc(t.Context(), pgtest.Connect(t, pgtest.Owner(t, url)), func(tx pgx.Tx) error {
					_, err := tx.Exec(t.Context(), c.sql)
					return err
				}); err != nil {
					t.Errorf("%s, as the owner: %s: %v", what, c.sql, err)
				}
			}
		}
	}
}

func TestSwitch_Skips(t *testing.T) {
	t.Parallel()
	t.Run("pooler", func(t *testing.T) {
		t.Parallel()
		pgtest.NotPooled(t, "it is a session's")
	})
	t.Run("role", func(t *testing.T) {
		t.Parallel()
		pgtest.NotAsRole(t, "it is the owner's")
	})
}

func TestSwitches(t *testing.T) {
	t.Parallel()
	const pooler, role = "behind PgBouncer: it is a session's", "as an application's role: it is the owner's"
	for _, c := range []struct{ pooler, role string }{{"", ""}, {"pgbouncer", ""}, {"", "1"}, {"pgbouncer", "1"}} {
		t.Run("pooler="+c.pooler+" role="+c.role, func(t *testing.T) {
			t.Parallel()
			out, err := again(t, "^TestSwitch_", "GATEPOST_TEST_POOLER="+c.pooler, "GATEPOST_TEST_ROLE="+c.role)
			if strings.Contains(out, "apt-get install pgbouncer") {
				t.Skip("there is no PgBouncer here")
			}
			if err != nil {
				t.Errorf("%v:\n%s", err, out)
			}
			if strings.Contains(out, pooler) != (c.pooler != "") || strings.Contains(out, role) != (c.role != "") {
				t.Errorf("skipped otherwise than asked:\n%s", out)
			}
		})
	}
}

func TestPooler_ThatIsUnknownIsRefused(t *testing.T) {
	t.Parallel()
	out, err := again(t, "^TestPool_", "GATEPOST_TEST_POOLER=pgcat")
	if err == nil || !strings.Contains(out, `GATEPOST_TEST_POOLER is "pgcat", want pgbouncer or nothing`) {
		t.Errorf("got %v with the output\n%s", err, out)
	}
}
