package bench

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// costs reads the processor time of this process and of the backends of its connections.
type costs struct {
	mu   sync.Mutex
	pids []uint32 // of backends on this machine
}

// on is a pool's configuration whose backends it knows.
func (c *costs) on(cfg *pgxpool.Config) *pgxpool.Config {
	cfg = cfg.Copy()
	hook := cfg.AfterConnect
	cfg.AfterConnect = func(ctx context.Context, conn *pgx.Conn) error {
		if pid := conn.PgConn().PID(); conn.PgConn().Conn().RemoteAddr().Network() == "unix" {
			c.mu.Lock()
			c.pids = append(c.pids, pid)
			c.mu.Unlock()
		}
		if hook != nil {
			return hook(ctx, conn)
		}
		return nil
	}
	return cfg
}

// spent is processor time, of a number of operations.
type spent struct {
	server, client time.Duration
	operations     int
}

func (c *costs) now() (s spent) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pid := range c.pids {
		s.server += onProcessor(fmt.Sprintf("/proc/%d/schedstat", pid))
	}
	return spent{server: s.server, client: ownProcessor()}
}

// onProcessor is the first of schedstat's numbers, 0 where there is none.
func onProcessor(path string) time.Duration {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(text), " ")
	ns, _ := strconv.ParseInt(first, 10, 64)
	return time.Duration(ns)
}

func (s spent) less(before spent) spent {
	return spent{server: s.server - before.server, client: s.client - before.client}
}

func (s *spent) add(more spent, operations int) {
	s.server += max(more.server, 0) // a backend that has ended is not there any more
	s.client += more.client
	s.operations += operations
}

// each is the microseconds of one operation.
func (s spent) each() (server, client float64) {
	n := float64(max(s.operations, 1))
	return us(s.server) / n, us(s.client) / n
}
