// Package faultproxy gives tests a network that fails: it stalls, cuts, and loses
// what is asked of the server, or the server's answer.
package faultproxy

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Proxy stands between a pool and the server.
type Proxy struct {
	listener net.Listener

	mu              sync.Mutex
	network, server string
	cond            *sync.Cond
	conns           map[net.Conn]bool
	fault           Fault
	deaf            bool // to cancel requests
	over            bool
	stall           bool
	// latency is added to each message.
	latency time.Duration
}

// Pool is a pool on the database of url, changed by each of change, whose connections
// all go through a proxy; both are closed when the test ends.
func Pool(tb testing.TB, url string, maxConns int32, change ...func(*pgxpool.Config)) (*pgxpool.Pool, *Proxy) {
	tb.Helper()
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	for _, change := range change {
		change(cfg)
	}
	p := New(tb, url)
	cfg.MaxConns = maxConns
	Through(cfg, p.Address())
	pool, err := pgxpool.NewWithConfig(tb.Context(), cfg)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(pool.Close)
	return pool, p
}

// New is a proxy in front of the server of url, closed when the test ends.
func New(tb testing.TB, url string) *Proxy {
	tb.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	p := &Proxy{conns: map[net.Conn]bool{}}
	p.cond = sync.NewCond(&p.mu)
	p.network, p.server = pgconn.NetworkAddress(cfg.Host, cfg.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		tb.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving) })
	tb.Cleanup(func() { p.close(); serving.Wait() })
	return p
}

// Through makes the connections of a pool go through the proxy at that address, which
// may be another process's. Statements are sent with their text each time, so that a
// fault can match it.
func Through(cfg *pgxpool.Config, address string) {
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}
}

// Address is where the proxy listens.
func (p *Proxy) Address() string { return p.listener.Addr().String() }

func (p *Proxy) serve(serving *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		p.keep(client)
		serving.Go(func() { p.connect(serving, client) })
	}
}

// connect goes on to the server, but not while all stalls: a server that shuts down
// doesn't end those that connected meanwhile and sent nothing, and waits for them as
// long as its authentication_timeout, a minute.
func (p *Proxy) connect(serving *sync.WaitGroup, client net.Conn) {
	p.wait()
	p.mu.Lock()
	network, address := p.network, p.server
	p.mu.Unlock()
	server, err := net.Dial(network, address)
	if err != nil {
		p.drop(client)
		return
	}
	p.keep(server)
	replies := make(chan Fault, 1) // a fault for the next reply
	serving.Go(func() { p.copy(server, client, func(b []byte) verdict { return p.request(b, replies) }) })
	serving.Go(func() { p.copy(client, server, func([]byte) verdict { return p.reply(replies) }) })
}

// keep notes a connection, for Break and close.
func (p *Proxy) keep(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.conns[conn] = true
	if p.over {
		conn.Close()
	}
}

// copy moves what arrives until one side closes, or pass says so.
func (p *Proxy) copy(to, from net.Conn, pass func([]byte) verdict) {
	told := true
	defer func() {
		p.drop(from)
		if told {
			p.drop(to)
		}
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			v := pass(buf[:n])
			if v == lose {
				return
			}
			p.wait()
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
			if v == cut {
				told = false
				return
			}
		}
		if err != nil {
			return
		}
	}
}

func (p *Proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	conn.Close()
}

func (p *Proxy) wait() {
	p.mu.Lock()
	for p.stall && !p.over {
		p.cond.Wait()
	}
	latency := p.latency
	p.mu.Unlock()
	time.Sleep(latency) //nolint:forbidigo // it is the fault
}

// SetLatency adds d to each message from now on.
func (p *Proxy) SetLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// SetStall holds up everything, or lets it go on.
func (p *Proxy) SetStall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = stall
	p.cond.Broadcast()
}

// Stalls says whether everything is held up.
func (p *Proxy) Stalls() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.stall
}

// Break breaks all connections. New ones are accepted.
func (p *Proxy) Break() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		conn.Close()
	}
}

// Cut breaks all connections and refuses new ones, for good.
func (p *Proxy) Cut() { p.close() }

// Redirect makes new connections go to the server of another url, as after a failover.
// Those that there are stay: see Break.
func (p *Proxy) Redirect(tb testing.TB, url string) {
	tb.Helper()
	cfg, err := pgx.ParseConfig(url)
	if err != nil {
		tb.Fatal(err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.network, p.server = pgconn.NetworkAddress(cfg.Host, cfg.Port)
}

func (p *Proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.cond.Broadcast()
	p.listener.Close()
	for conn := range p.conns {
		conn.Close()
	}
}
