package pgtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
)

// ExamplePool is Pool for an Example, which has no testing.TB. The caller closes it. It
// panics when there is no server.
func ExamplePool() *pgxpool.Pool {
	pool, err := pgxpool.New(context.Background(), URL(exampleTB{}))
	if err != nil {
		panic(err)
	}
	return pool
}

// exampleTB is the little of testing.TB that a server needs to start.
type exampleTB struct{ testing.TB }

func (exampleTB) Helper()           {}
func (exampleTB) Fatal(args ...any) { panic(args) }
