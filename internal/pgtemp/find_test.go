package pgtemp_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
)

func TestStart_NamesTheRemedyWhereNoServerIs(t *testing.T) {
	t.Parallel()
	h := startHelper(t, order{NoFolders: true}, "PATH=", "GATEPOST_PG_BIN=")
	if !h.NoServer {
		t.Errorf("got the error %q, want ErrNoServer", h.Err)
	}
	h.wantError(t, "apt-get install postgresql", "brew install postgresql", "Docker", "GATEPOST_PG_BIN", "database URL")
	if strings.Contains(h.Err, "\n") {
		t.Errorf("got %q, want one line", h.Err)
	}
}

func TestStart_RefusesAWrongBinDir(t *testing.T) {
	t.Parallel()
	h := startHelper(t, order{}, "GATEPOST_PG_BIN=/nowhere")
	h.wantError(t, "GATEPOST_PG_BIN", "/nowhere")
	if h.NoServer {
		t.Errorf("got ErrNoServer from %q, want an error of its own", h.Err)
	}
}

func TestStart_PrefersItsOptionsToTheEnvironment(t *testing.T) {
	t.Parallel()
	h := startHelper(t, order{Options: pgtemp.Options{BinDir: "/elsewhere"}}, "GATEPOST_PG_BIN=/nowhere")
	h.wantError(t, "/elsewhere")
}

func TestFind_TakesTheNewestFirst(t *testing.T) {
	t.Parallel()
	got := []string{"/usr/lib/postgresql/9.6/bin", "/usr/lib/postgresql/18/bin", "/usr/lib/postgresql/17/bin"}
	slices.SortFunc(got, pgtemp.NewestFirst)
	want := []string{"/usr/lib/postgresql/18/bin", "/usr/lib/postgresql/17/bin", "/usr/lib/postgresql/9.6/bin"}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
