package operator

import (
	"context"
	"fmt"

	"github.com/gatepost/gatepost/gen/lockdb"
	"github.com/jackc/pgx/v5"
)

// ParseTable takes a table's name apart as SQL does, the schema optional: unquoted letters
// are folded, and what is in double quotes stays. It asks no table. One statement.
func ParseTable(ctx context.Context, db lockdb.DBTX, name string) (pgx.Identifier, error) {
	parts, err := lockdb.New(db).IdentifierParse(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("read the table's name %q: %w", name, err)
	}
	return parts, nil
}

// HasTable says whether there is a table, or what else can be read like one, of that
// name; without a schema, in those of search_path. One statement.
func HasTable(ctx context.Context, db lockdb.DBTX, table pgx.Identifier) (bool, error) {
	present, err := lockdb.New(db).TablePresent(ctx, table.Sanitize())
	if err != nil {
		return false, fmt.Errorf("look for the table %s: %w", table.Sanitize(), err)
	}
	return present, nil
}
