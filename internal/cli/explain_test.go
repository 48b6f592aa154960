package cli_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/pglock"
	"github.com/jackc/pgx/v5/pgconn"
)

func TestExplain_IsOneLineForPeople(t *testing.T) {
	t.Parallel()
	now := time.Now()
	held := &pglock.HeldError{
		Name: "it's\x1b", Holder: "h\x1b[2J", Token: 7, Since: now.Add(-100 * time.Second), ExpiresAt: now.Add(20 * time.Second), RetryAfter: 20 * time.Second,
	}
	for want, err := range map[string]error{
		"it can't be":                  errors.New("pglock: it can't\n\tbe"),
		"read keys: no, idem: no":      errors.New("idem: read keys: pglock: no, idem: no"),
		`close "a: pglock: b\"": late`: errors.New(`pglock: close "a: pglock: b\"": idem: late`),
		"lost (timeout); gone":         errors.New("lost (pglock: timeout); pglock: gone"),
		"interrupted":                  context.Canceled,
		"drop it: interrupted":         errors.New("drop it: interrupt signal received"),
		"list: no answer in time":      fmt.Errorf("list: %w", context.DeadlineExceeded),
		"read x.gz: unexpected EOF":    fmt.Errorf("read x.gz: %w", io.ErrUnexpectedEOF),
		"the connection to the database broke: broken pipe": fmt.Errorf(
			"list: %w", &net.OpError{Op: "write", Net: "unix", Err: os.NewSyscallError("write", syscall.EPIPE)}),
		`a \x1b[2J b`: errors.New("a \x1b[2J b"),
		"ERROR: no (SQLSTATE 42601); say yes": &pgconn.PgError{
			Severity: "ERROR", Message: "no", Code: "42601", Hint: "say yes",
		},
		"list: ERROR: permission denied for schema gatepost (SQLSTATE 42501); the schema's owner gives a role what it needs: gatepost migrate grants ROLE | psql": fmt.Errorf(
			"list: %w", &pgconn.PgError{Severity: "ERROR", Message: "permission denied for schema gatepost", Code: "42501"}),
		"list: ERROR: permission denied for database gatepost (SQLSTATE 42501); ask the database's owner for that right, or use another role": fmt.Errorf(
			"list: %w", &pgconn.PgError{Severity: "ERROR", Message: "permission denied for database gatepost", Code: "42501"}),
		"the database has no Gatepost schema, or an old one; run: gatepost migrate up": fmt.Errorf("x: %w", idem.ErrNotMigrated),
		"the database has version 5 of Gatepost's schema, and this program needs 7; run: gatepost migrate up": fmt.Errorf(
			"x: %w", &cli.SchemaError{Have: 5, Need: 7, Err: pglock.ErrNotMigrated}),
		`lease "it's\x1b" is held by h\x1b[2J (token 7) since ` + held.Since.Format(time.DateTime) +
			`, for 1 min 40 s, and expires in 20 s unless renewed; all about it: gatepost show 'it'\''s\x1b'`: held,
		`lease "n" is being taken by another at this moment; all about it: gatepost show n`: &pglock.HeldError{Name: "n", Fenced: true},
		`lease "n" is free, but a transaction fenced by its last token 7 is still open; all about it: gatepost show n`: &pglock.HeldError{
			Name: "n", Token: 7, Fenced: true,
		},
	} {
		if got := cli.Explain(err); got != want {
			t.Errorf("%q is explained as\n%s\nwant\n%s", err, got, want)
		}
	}
}
