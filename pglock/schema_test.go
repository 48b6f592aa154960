package pglock_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/pgtest"
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
