package compat_test

import (
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/doctor"
	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

// doctor works through a pooler, in any version of it, and tells that it is there.
func TestPgBouncer_DoctorTellsIt(t *testing.T) {
	t.Parallel()
	direct := pgtest.Database(t)
	session, _ := pooled(t, direct, pgtemp.PoolerOptions{Size: 3, Mode: "session"})
	for url, want := range map[string]string{
		direct:                 "",
		pooledBy(t, direct, 3): "in transaction mode",
		pooledBy(t, direct, 1): "in transaction mode",
		session:                "in session mode",
	} {
		cfg, err := pgx.ParseConfig(url)
		if err != nil {
			t.Fatal(err)
		}
		report, err := doctor.Examine(t.Context(), cfg, doctor.Options{})
		if err != nil {
			t.Fatal(err)
		}
		last := report.Results[len(report.Results)-1]
		if last.Check != "pooler" || (want == "") != (len(last.Findings) == 0) || want != "" && !strings.Contains(last.Findings[0].Text, want) {
			t.Errorf("of %s it says %+v, want %q", url, last, want)
		}
		if report.Failed() > 0 || report.Unseen() > 0 {
			t.Errorf("through %s it saw less: %+v", url, report)
		}
	}
}
