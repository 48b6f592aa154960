package bench_test

import (
	"testing"

	"github.com/gatepost/gatepost/internal/bench"
	"github.com/gatepost/gatepost/internal/pgtest"
)

// Each step of a floor does what its name says, which is more than the one before does,
// and the last one is what the row of the same name measures.
func TestFloors_ClimbFromThePlainStatementsToTheWhole(t *testing.T) {
	t.Parallel()
	_, floors, err := bench.Floors(t.Context(), config(t, pgtest.Database(t)), quick())
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]struct {
		first, last float64 // round trips
		plans       int
	}{
		"acquire": {2, 2, 4}, "fenced": {3, 3, 1}, "idem": {3, 3, 3}, "replay": {1, 1, 0},
	}
	if len(floors) != len(want) {
		t.Fatalf("got %d floors, want %d", len(floors), len(want))
	}
	for _, f := range floors {
		want := want[f.Row]
		if got := tripsOf(t, f.Steps[0]); got != want.first {
			t.Errorf("%s begins with %g round trips, want %g", f.Row, got, want.first)
		}
		if got := tripsOf(t, f.Steps[len(f.Steps)-1]); got != want.last {
			t.Errorf("%s ends with %g round trips, want %g", f.Row, got, want.last)
		}
		if len(f.Plans) != want.plans {
			t.Errorf("%s has %d plans, want %d", f.Row, len(f.Plans), want.plans)
		}
		for _, s := range f.Steps {
			if s.Ratio == nil || s.Ratio.Median <= 0 {
				t.Errorf("%s, %s: ratio %+v", f.Row, s.What, s.Ratio)
			}
		}
	}
}

func tripsOf(t *testing.T, s bench.Step) float64 {
	t.Helper()
	return float64(int(countOf(t, bench.Result{Counts: s.Counts}, "round trips")))
}
