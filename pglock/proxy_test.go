package pglock_test

import (
	"bytes"
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// proxy stands between a pool and the server: it stalls, cuts, and loses what
// is asked of it.
type proxy struct {
	listener        net.Listener
	network, server string

	mu    sync.Mutex
	cond  *sync.Cond
	conns map[net.Conn]bool
	fault fault
	over  bool
	stall bool
	// latency is added to each message.
	latency time.Duration
}

// fault happens once, to the first message from a client that contains match.
type fault struct {
	match   string
	lose    bool          // the server never gets it; else it does, and the reply is lost
	delay   time.Duration // instead of losing anything, the reply comes late
	reached chan time.Time
}

// throughProxy is a pool whose connections all go through a proxy. Statements
// are sent with their text each time, so that a fault can match it.
func throughProxy(t *testing.T, maxConns int32) (*pgxpool.Pool, *proxy) {
	t.Helper()
	cfg, err := pgxpool.ParseConfig(pgtest.URL(t))
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{conns: map[net.Conn]bool{}}
	p.cond = sync.NewCond(&p.mu)
	p.network, p.server = pgconn.NetworkAddress(cfg.ConnConfig.Host, cfg.ConnConfig.Port)
	if p.listener, err = net.Listen("tcp", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(&serving) })
	t.Cleanup(func() { p.close(); serving.Wait() })

	cfg.MaxConns = maxConns
	cfg.ConnConfig.DefaultQueryExecMode = pgx.QueryExecModeExec
	cfg.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "tcp", p.listener.Addr().String())
	}
	return poolOf(t, cfg), p
}

func (p *proxy) serve(serving *sync.WaitGroup) {
	for {
		client, err := p.listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial(p.network, p.server)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns[client], p.conns[server] = true, true
		p.mu.Unlock()
		replies := make(chan fault, 1) // a fault for the next reply
		serving.Go(func() { p.copy(server, client, func(b []byte) bool { return p.request(b, replies) }) })
		serving.Go(func() { p.copy(client, server, func([]byte) bool { return reply(replies) }) })
	}
}

// copy moves what arrives until one side closes, or pass says no.
func (p *proxy) copy(to, from net.Conn, pass func([]byte) bool) {
	defer p.drop(to)
	defer p.drop(from)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			p.wait()
			if !pass(buf[:n]) {
				return
			}
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}

// request says whether a message goes on to the server.
func (p *proxy) request(message []byte, replies chan<- fault) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if f.match == "" || !bytes.Contains(message, []byte(f.match)) {
		return true
	}
	p.fault = fault{}
	if !f.lose {
		replies <- f
	}
	f.reached <- time.Now()
	return !f.lose
}

// reply says whether an answer goes on to the client.
func reply(replies <-chan fault) bool {
	select {
	case f := <-replies:
		time.Sleep(f.delay) //nolint:forbidigo // it is the fault
		return f.delay > 0
	default:
		return true
	}
}

func (p *proxy) drop(conn net.Conn) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.conns, conn)
	conn.Close()
}

func (p *proxy) wait() {
	p.mu.Lock()
	for p.stall && !p.over {
		p.cond.Wait()
	}
	latency := p.latency
	p.mu.Unlock()
	time.Sleep(latency) //nolint:forbidigo // it is the fault
}

func (p *proxy) setLatency(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.latency = d
}

// setStall holds up everything, or lets it go on.
func (p *proxy) setStall(stall bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stall = stall
	p.cond.Broadcast()
}

// next arms a fault and returns a channel that tells when it happened.
func (p *proxy) next(f fault) <-chan time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.reached = make(chan time.Time, 1)
	p.fault = f
	return f.reached
}

func (p *proxy) close() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.over = true
	p.cond.Broadcast()
	p.listener.Close()
	for conn := range p.conns {
		conn.Close()
	}
}
