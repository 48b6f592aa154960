package bench

import (
	"context"
	"maps"
	"net"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// counter counts what the connections of a pool, and of the pools that a client makes
// from it, send: statements, by name where they have one, and round trips. Of a pool
// that is timed it would be a part of the time.
type counter struct {
	trips atomic.Int64

	mu         sync.Mutex
	statements map[string]int64
}

// counting is a pool's configuration with a counter.
func counting(cfg *pgxpool.Config) (*pgxpool.Config, *counter) {
	c := &counter{statements: map[string]int64{}}
	cfg = cfg.Copy()
	cfg.ConnConfig.Tracer = c
	cfg.ShouldPing = func(context.Context, pgxpool.ShouldPingParams) bool { return false } // a round trip, of one that was idle
	dial := cfg.ConnConfig.DialFunc
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return &countedConn{Conn: conn, trips: &c.trips}, nil
	}
	return cfg, c
}

var (
	_ pgx.QueryTracer = (*counter)(nil)
	_ pgx.BatchTracer = (*counter)(nil)
)

// TraceQueryStart counts a statement.
func (c *counter) TraceQueryStart(ctx context.Context, _ *pgx.Conn, data pgx.TraceQueryStartData) context.Context {
	c.count(data.SQL)
	return ctx
}

// TraceQueryEnd does nothing.
func (*counter) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TraceBatchStart does nothing: its statements are counted one by one.
func (*counter) TraceBatchStart(ctx context.Context, _ *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return ctx
}

// TraceBatchQuery counts a statement.
func (c *counter) TraceBatchQuery(_ context.Context, _ *pgx.Conn, data pgx.TraceBatchQueryData) {
	c.count(data.SQL)
}

// TraceBatchEnd does nothing.
func (*counter) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData) {}

// sqlcName finds the name of a statement of sqlc's.
var sqlcName = regexp.MustCompile(`-- name: (\w+)`)

// count counts one statement under its name, or under its first word.
func (c *counter) count(sql string) {
	name := "?"
	if m := sqlcName.FindStringSubmatch(sql); m != nil {
		name = m[1]
	} else if words := strings.Fields(sql); len(words) > 0 {
		name = strings.ToUpper(words[0])
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.statements[name]++
}

// total is how many statements there were, BEGIN and COMMIT and the like included.
func (c *counter) total() (n int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, count := range c.statements {
		n += count
	}
	return n
}

// of is how many statements of a name there were.
func (c *counter) of(name string) int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.statements[name]
}

// snapshot is how many statements of each name there were.
func (c *counter) snapshot() map[string]int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.statements)
}

// span sums up what is counted between a begin and an end. A nil one does nothing.
type span struct {
	counter *counter
	before  map[string]int64
	sum     map[string]int64
}

func (s *span) begin() {
	if s != nil {
		s.before = s.counter.snapshot()
	}
}

func (s *span) end() {
	if s == nil {
		return
	}
	for name, n := range s.counter.snapshot() {
		s.sum[name] += n - s.before[name]
	}
}

// countedConn counts how often the client turns from writing to reading.
type countedConn struct {
	net.Conn
	trips *atomic.Int64
	wrote atomic.Bool
}

func (c *countedConn) Write(b []byte) (int, error) {
	c.wrote.Store(true)
	return c.Conn.Write(b)
}

func (c *countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if n > 0 && c.wrote.Swap(false) {
		c.trips.Add(1)
	}
	return n, err
}
