//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package pgtemp_test

import (
	"errors"
	"io/fs"
	"testing"

	"github.com/gatepost/gatepost/internal/pgtemp"
	"github.com/jackc/pgx/v5"
)

func TestStandby_FollowsAndIsPromoted(t *testing.T) {
	t.Parallel()
	primary, err := pgtemp.Start(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = primary.Stop() })
	standby, err := primary.Standby(t.Context())
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, errors.ErrUnsupported) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := standby.Stop(); err != nil {
			t.Error(err)
		}
	})
	conn, err := pgx.Connect(t.Context(), standby.URL(""))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close(t.Context()) }()
	var recovering, promoted bool
	if err := conn.QueryRow(t.Context(), `SELECT pg_is_in_recovery()`).Scan(&recovering); err != nil || !recovering {
		t.Fatalf("got recovery %t, %v; want a standby", recovering, err)
	}
	if err := primary.Stop(); err != nil {
		t.Fatal(err)
	}
	if err := conn.QueryRow(t.Context(), `SELECT pg_promote()`).Scan(&promoted); err != nil || !promoted {
		t.Fatalf("got promoted %t, %v", promoted, err)
	}
	if _, err := conn.Exec(t.Context(), `CREATE TABLE written ()`); err != nil {
		t.Errorf("a promoted standby takes no writes: %v", err)
	}
}
