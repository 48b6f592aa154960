package idem_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

func TestCopyOnce_SoManyChunksGoStraightAndNoMore(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	target := keyed(t, pool)
	got, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 50, 3)
	if err != nil {
		t.Fatal(err)
	}
	wantCounts(t, got, idem.Counts{Rows: 100, Inserted: 100})
	if n := writers(t, pool, target); n != 4 {
		t.Errorf("%d transactions wrote the rows, want 3 chunks and what came after them", n)
	}
	wantRows(t, pool, target, 100)
}

// Behind the last chunk that goes straight nothing that a look could find is used.
func TestCopyOnce_LooksBeforeEachChunkAndNoMore(t *testing.T) {
	t.Parallel()
	seen := &looks{}
	pool := pgtest.Connect(t, pgtest.URL(t), func(cfg *pgxpool.Config) { cfg.ConnConfig.Tracer = seen })
	target := keyed(t, pool)
	if _, err := loadInChunks(t.Context(), pool, target, pgx.CopyFromRows(lines(1, 100, "body")), 50, 3); err != nil {
		t.Fatal(err)
	}
	if n := seen.n.Load(); n != 3 {
		t.Errorf("%d looks before 3 chunks", n)
	}
}

// looks counts the statements that look for the next key.
type looks struct{ n atomic.Int32 }

func (l *looks) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	if strings.Contains(data.SQL, " LIMIT 1") {
		l.n.Add(1)
	}
	return ctx
}

func (*looks) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// While a source is read the connection is idle in its transaction: not for as long as a
// slow one needs for megabytes.
func TestCopyOnce_ASlowSourceGivesSmallChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := 0
		sizes := idem.ChunksOf(pgx.CopyFromFunc(func() ([]any, error) {
			if n++; n > 9 {
				return nil, nil
			}
			time.Sleep(700 * time.Millisecond) //nolint:forbidigo // by the bubble's clock
			return []any{int64(n)}, nil
		}))
		if want := []int64{3, 3, 3, 0}; !slices.Equal(sizes, want) {
			t.Errorf("chunks of %d rows, want %d: one in two seconds", sizes, want)
		}
	})
}

func TestCopyOnce_AMillionRowsAreFewChunks(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) { // whose clock stands still while rows come
		n := int64(1e17)
		sizes := idem.ChunksOf(pgx.CopyFromFunc(func() ([]any, error) {
			if n++; n > 1e17+3_000_000 {
				return nil, nil
			}
			return []any{n}, nil
		}))
		if len(sizes) > 40 || sizes[0] > 15_000 || sizes[len(sizes)-2] > 450_000 {
			t.Errorf("60 MB are %d chunks of %d rows, want at most 40 from 256 KB to 8 MB", len(sizes), sizes)
		}
	})
}
