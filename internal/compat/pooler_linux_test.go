package compat_test

import (
	"errors"
	"os"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
)

// envPooler is set to "required" where the lack of PgBouncer is a failure.
const envPooler = "GATEPOST_PGBOUNCER"

// pooledBy starts a PgBouncer in transaction mode in front of the database of a URL,
// with that many connections to it, for the length of the test. It returns the URL of
// the same database through it.
func pooledBy(t *testing.T, direct string, size int) string {
	t.Helper()
	url, _ := pooled(t, direct, pgtemp.PoolerOptions{Size: size})
	return url
}

// pooled is pooledBy with PgBouncer's other options, and returns it, too.
func pooled(t *testing.T, direct string, opts pgtemp.PoolerOptions) (string, *pgtemp.Pooler) {
	t.Helper()
	pooler, err := pgtemp.StartPooler(t.Context(), direct, &opts)
	if errors.Is(err, pgtemp.ErrNoPooler) && os.Getenv(envPooler) != "required" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := pooler.Stop(); err != nil {
			t.Error(err)
		}
	})
	cfg, err := pgx.ParseConfig(direct)
	if err != nil {
		t.Fatal(err)
	}
	return pooler.URL(cfg.Database), pooler
}
