package idem_test

import (
	"errors"
	"testing"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// A row that came between the look and the claim decides: the claim itself takes what
// the table says, and nothing else.
func TestClaim_TakesWhatTheTableSaysWithoutALookBefore(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, cell := range cells {
		for f, want := range map[idem.Fingerprint]event{fp: cell.same, idem.FingerprintOf([]byte("other")): cell.other} {
			tx, key := begin(t, pool, pgx.TxOptions{}), newKey(t)
			if cell.row != nil {
				cell.row.put(t, tx, key)
			}
			_, err := idemdb.New(tx).KeyClaim(t.Context(), idemdb.KeyClaimParams{
				Operation: key.Operation, Scope: string(key.Scope), Key: key.Key, Fingerprint: f[:], FingerprintVersion: 1,
				Attempt: "0123abcd-4567-4abc-8def-0123456789ab", RetentionUs: 60e6, Lock: idem.Lock(key), LockTimeoutMs: 1000,
			})
			if claimed := err == nil; claimed != (want == ran) || err != nil && !errors.Is(err, pgx.ErrNoRows) {
				t.Errorf("%s, same = %t: claimed = %t, %v; want %s", cell.name, f == fp, claimed, err, want)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A claim at once is refused by a row of its own key, whatever it says, and by no other's.
func TestClaim_AtOnceIsRefusedByItsOwnRowOnly(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for _, cell := range cells {
		if cell.row == nil {
			continue
		}
		key := newKey(t)
		cell.row.put(t, pool, key)
		for _, k := range []idem.Key{
			key, {Operation: key.Operation, Scope: "another", Key: key.Key}, {Operation: "another", Scope: key.Scope, Key: key.Key},
			{Operation: key.Operation, Scope: key.Scope, Key: key.Key + "-another"},
		} {
			tx := begin(t, pool, pgx.TxOptions{})
			_, err := idemdb.New(tx).KeyClaim(t.Context(), idemdb.KeyClaimParams{
				Operation: k.Operation, Scope: string(k.Scope), Key: k.Key, Fingerprint: fp[:], FingerprintVersion: 1, Unseen: true,
				Attempt: "0123abcd-4567-4abc-8def-0123456789ab", RetentionUs: 60e6, Lock: idem.Lock(k), LockTimeoutMs: 1000,
			})
			if refused := errors.Is(err, pgx.ErrNoRows); refused != (k == key) || err != nil && !refused {
				t.Errorf("%s, claim of %s: %v", cell.name, k, err)
			}
			if err := tx.Rollback(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
	}
}
