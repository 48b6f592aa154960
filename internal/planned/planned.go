// Package planned sends statements that PostgreSQL plans anew each time.
package planned

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Pool has each query planned for the arguments that it has. A prepared one comes to a
// plan for any arguments with the sixth time, which reads all rows where these ask for
// few.
type Pool struct{ *pgxpool.Pool }

// Query sends a statement that isn't prepared, in a mode of pgx that reads its columns in
// their binary forms, as its default does: of a time as text pgx reads no DateStyle but ISO.
func (p Pool) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	cfg := p.Pool.Config().ConnConfig
	if cfg.DefaultQueryExecMode != pgx.QueryExecModeCacheStatement {
		return p.Pool.Query(ctx, sql, args...) // none of the others prepares
	}
	mode := pgx.QueryExecModeCacheDescribe
	if cfg.DescriptionCacheCapacity == 0 {
		mode = pgx.QueryExecModeDescribeExec
	}
	return p.Pool.Query(ctx, sql, append([]any{mode}, args...)...)
}
