package pglock_test

import (
	"errors"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5/pgconn"
)

// Rule F1 depends on this index being just that.
func TestSchema_TokenIsInAPlainUniqueIndex(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	got := value[int](t, pool, `
		SELECT count(*) FROM pg_index
		WHERE indrelid = 'gatepost.leases'::regclass
			AND indisunique AND indimmediate AND indisvalid AND indpred IS NULL AND indexprs IS NULL
			AND indnatts = indnkeyatts
			AND pg_get_indexdef(indexrelid) LIKE '% USING btree (name, slot, token)'`)
	if got != 1 {
		t.Errorf("%d plain unique indexes on (name, slot, token), want 1", got)
	}
	expiry := value[int](t, pool, `
		SELECT count(*) FROM pg_index AS i JOIN pg_attribute AS a ON a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey)
		WHERE i.indrelid = 'gatepost.leases'::regclass AND a.attname IN ('expires_at', 'renewed_at')`)
	if expiry != 0 {
		t.Error("what a heartbeat changes is indexed: no renewal is HOT")
	}
}

// What a hand or another program writes is held to what this package relies on.
func TestSchema_RefusesRowsThatNoLeaseCanHave(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for what, values := range map[string]string{
		"an empty name":   `'', 0, 1`,
		"a long name":     `repeat('x', 256), 0, 1`,
		"a negative slot": `'x', -1, 1`,
		"no token":        `'x', 0, 0`,
	} {
		_, err := pool.Exec(t.Context(), `INSERT INTO gatepost.leases (name, slot, token, acquired_at, renewed_at, expires_at, transitions)
			SELECT v.*, now(), now(), now(), 1 FROM (VALUES (`+values+`)) AS v`)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23514" {
			t.Errorf("%s: %v, want 23514", what, err)
		}
	}
	for _, us := range []int64{0, -1, 604_800_000_001} {
		_, err := pool.Exec(t.Context(), `SELECT $1::bigint::gatepost.lease_ttl`, us)
		if pgErr, ok := errors.AsType[*pgconn.PgError](err); !ok || pgErr.Code != "23514" {
			t.Errorf("a TTL of %d us: %v, want 23514", us, err)
		}
	}
}
