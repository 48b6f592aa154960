package doctor_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/gen/doctordb"
)

// Sets of transactions run out as transactions do, and a TOAST table has an age of its own.
func TestWraparound_CountsSetsAndTOAST(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	lease := acquired(t, url, "shared")[0]
	one, two := connect(t, url), connect(t, url)
	fence(t, one, lease)
	fence(t, two, lease)
	opts := patient()
	opts.Limits.TableXIDs = 1
	var texts []string
	for _, f := range result(t, examine(t, url, opts), "wraparound").Findings {
		texts = append(texts, f.Text)
	}
	if all := strings.Join(texts, "\n"); !strings.Contains(all, " sets of transactions (multixacts) ago") || !strings.Contains(all, " transactions ago") {
		t.Errorf("it says %q", all)
	}
	run(t, url, "VACUUM (FREEZE, PROCESS_TOAST false) gatepost.idempotency_keys")
	var table, toast int64
	err := one.QueryRow(t.Context(), "SELECT age(c.relfrozenxid), age(t.relfrozenxid) FROM pg_class AS c JOIN pg_class AS t ON t.oid = c.reltoastrelid WHERE c.oid = 'gatepost.idempotency_keys'::regclass").Scan(&table, &toast)
	if err != nil || table >= toast {
		t.Fatalf("the ages are %d and %d, %v", table, toast, err)
	}
	rows, err := doctordb.New(connect(t, url)).TableList(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range rows {
		if r.Name == "idempotency_keys" && r.Xids < toast {
			t.Errorf("the age is %d, and its TOAST table's %d", r.Xids, toast)
		}
	}
}

// A row that was deleted took the number of its acquisitions along: there is nothing to say.
func TestHotShare_SaysNothingWhereRowsWereDeleted(t *testing.T) {
	t.Parallel()
	url := healthy.database(t)
	opts := patient()
	opts.Limits.HotUpdates = 100
	for n := range 20 {
		run(t, url, insertLease(fmt.Sprint(n), "1", "1 hour"))
	}
	run(t, url, "DO $$ BEGIN FOR n IN 1..15 LOOP UPDATE gatepost.leases SET token = token + 1, transitions = transitions + 1; COMMIT; END LOOP; END $$",
		"DELETE FROM gatepost.leases")
	conn := connect(t, url)
	until(t, "statistics", func() bool {
		var updates, deletes int64
		err := conn.QueryRow(t.Context(), "SELECT n_tup_upd, n_tup_del FROM pg_stat_all_tables WHERE schemaname = 'gatepost' AND relname = 'leases'").Scan(&updates, &deletes)
		return err == nil && updates == 300 && deletes == 20
	})
	if got := found(examine(t, url, opts)); len(got) != 0 {
		t.Errorf("it found %q", got)
	}
}
