package doctor_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/doctor"
)

// What an operator who gives no options is told, and from where on.
func TestOptions_HaveTheLimitsThatTheyPromise(t *testing.T) {
	t.Parallel()
	want := doctor.Options{
		Timeout:      5 * time.Second,
		FenceTimeout: 30 * time.Second, // pglock's default
		Limits: doctor.Limits{
			Open: 15 * time.Minute, Lapsed: time.Hour, Backlog: 24 * time.Hour, Clock: time.Second,
			SlotXIDs: 1_000_000, TableXIDs: 1_000_000_000, DeadRows: 10_000, HotUpdates: 1_000,
		},
	}
	if got := (doctor.Options{}).WithDefaults(); !reflect.DeepEqual(got, want) {
		t.Errorf("the defaults are %+v, want %+v", got, want)
	}
	own := doctor.Options{Role: "r", FenceOnly: true, Timeout: 1, FenceTimeout: 2, Limits: doctor.Limits{3, 4, 5, 6, 7, 8, 9, 10}}
	if got := own.WithDefaults(); !reflect.DeepEqual(got, own) {
		t.Errorf("of %+v it makes %+v", own, got)
	}
}
