package cli

import (
	"context"
	"errors"
	"fmt"

	"github.com/gatepost/gatepost/migrations"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// notMigratedText is for a database that tells no version: another tool may have brought
// the schema there.
const notMigratedText = "the database has no Gatepost schema, or an old one; run: gatepost migrate up"

// SchemaError says that a database has another version of the schema than a program
// needs, and what to do.
type SchemaError struct {
	Have, Need int64 // Have is 0 when there is none, or one without a version
	Hidden     bool  // this role may not read Have
	Err        error // what failed for it; may be nil
}

func (e *SchemaError) Error() string {
	switch {
	case e.Hidden:
		return fmt.Sprintf("the database has another version of Gatepost's schema than this program's %d; its owner sees which: gatepost migrate status", e.Need)
	case e.Have == 0:
		return notMigratedText
	case e.Have < e.Need:
		return fmt.Sprintf("the database has version %d of Gatepost's schema, and this program needs %d; run: gatepost migrate up", e.Have, e.Need)
	case e.Have > e.Need:
		return fmt.Sprintf("the database has version %d of Gatepost's schema, and this program knows only %d; use a newer one: "+
			"go install github.com/gatepost/gatepost/cmd/gatepost@latest", e.Have, e.Need)
	default:
		return fmt.Sprintf("something of Gatepost's schema is missing, although all %d migrations are applied: %s; see: gatepost doctor", e.Have, plain(oneLine(e.Err.Error())))
	}
}

// Unwrap returns what failed.
func (e *SchemaError) Unwrap() error { return e.Err }

// WithSchema adds to an error that comes from a missing or another schema which one the
// database has. Other errors, and nil, come back as they are.
func WithSchema(ctx context.Context, pool *pgxpool.Pool, err error) error {
	if err == nil || !notMigrated(err) {
		return err
	}
	have, failed := SchemaVersion(ctx, pool)
	if pgErr, ok := errors.AsType[*pgconn.PgError](failed); ok && pgErr.Code == "42501" { // insufficient_privilege
		return &SchemaError{Hidden: true, Need: migrations.Latest(), Err: err}
	}
	if failed != nil {
		return err
	}
	return &SchemaError{Have: have, Need: migrations.Latest(), Err: err}
}

// SchemaVersion is the newest migration that is applied to a database, perhaps by a newer
// program; 0 when there is none.
func SchemaVersion(ctx context.Context, pool *pgxpool.Pool) (version int64, err error) {
	all, err := migrations.Status(ctx, pool)
	for _, m := range all {
		if m.Applied {
			version = max(version, m.Version)
		}
	}
	return version, err
}
