package bench_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// Times are not held here, since they are those of the machine; that everything can be
// measured is, and that what the large one has is there.
func TestScale_MeasuresEachGrowth(t *testing.T) {
	t.Parallel()
	small, large := pgtest.Database(t), pgtest.Database(t)
	sizes := bench.Sizes{Names: 3000, Held: 20, Keys: 4000, Waiters: 5, Clients: 4}
	found, err := bench.Scale(t.Context(), config(t, small), config(t, large), bench.ScaleOptions{Sizes: sizes, Turns: 1})
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]int{}
	for _, g := range found {
		rows[g.Of]++
		if g.From.P50US <= 0 || g.To.P50US <= 0 || g.P50 <= 0 || g.P99 <= 0 || g.To.P99US < g.To.P50US || g.From.Size >= g.To.Size {
			t.Errorf("got %+v", g)
		}
	}
	for _, of := range []string{"clients", "waiters", "leases held", "names", "keys"} {
		if rows[of] < 2 {
			t.Errorf("%d growths of %s were measured", rows[of], of)
		}
	}
	for table, most := range map[string]int{"leases": sizes.Names, "idempotency_keys": sizes.Keys} {
		var n int
		if err := pgtest.Connect(t, large).QueryRow(t.Context(), "SELECT count(*) FROM gatepost."+table).Scan(&n); err != nil || n < most {
			t.Errorf("%s has %d rows, %v, want %d", table, n, err, most)
		}
	}
}

func TestSizes_ScaledStillShowGrowth(t *testing.T) {
	t.Parallel()
	if got := bench.FullSize.Scaled(1); got != bench.FullSize {
		t.Errorf("the whole is %+v", got)
	}
	if got := bench.FullSize.Scaled(0.000001); got.Names < 2000 || got.Keys < 2000 || got.Held < 100 || got.Clients < 16 {
		t.Errorf("a millionth is %+v, in which nothing shows", got)
	}
}
