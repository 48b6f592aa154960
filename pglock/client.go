package pglock

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// cleanupTimeout bounds what is done after a caller's context may be over.
const cleanupTimeout = 5 * time.Second

// A Client acquires leases and keeps them alive. One a process is enough; it is
// safe for concurrent use. Close it.
type Client struct {
	pool    *pgxpool.Pool
	cfg     Config
	control *control
	beat    *heartbeat
	waiting *waiting
	trace   tracers
	// explicit says that the pool's sessions are not READ COMMITTED and READ WRITE by
	// themselves, as the first try found out: each statement needs its BEGIN then.
	explicit atomic.Bool
	// byFunction says that the role has no right to the leases, as a refusal told, and
	// fences through gatepost.try_fence.
	byFunction atomic.Bool
	lastServer atomic.Pointer[server]

	// closing is closed when Close is first called, closed when it is through.
	closing, closed chan struct{}
	closeOnce       sync.Once

	mu sync.Mutex
	// works are the cancel functions of running Do calls.
	works map[*work]struct{}
	// working counts Do calls; it is only added to while mu is held and closing is
	// open.
	working sync.WaitGroup
	// background counts the goroutines that clean up; it is only added to while mu
	// is held and drained is false.
	background sync.WaitGroup
	drained    bool
	leases     map[*Lease]struct{}
}

// work is one call of Do.
type work struct{ cancel context.CancelCauseFunc }

// New makes a client on the application's pool. It validates cfg (an error
// matches ErrInvalidConfig), starts nothing and sends nothing. The pool stays
// the caller's: close it after the client.
func New(pool *pgxpool.Pool, cfg Config) (*Client, error) {
	if pool == nil {
		return nil, fmt.Errorf("%w: the pool is nil", ErrInvalidConfig)
	}
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	c := &Client{
		pool:    pool,
		cfg:     cfg,
		control: newControl(pool, cfg),
		closing: make(chan struct{}),
		closed:  make(chan struct{}),
		works:   map[*work]struct{}{},
		leases:  map[*Lease]struct{}{},
	}
	c.beat, c.waiting = newHeartbeat(c), newWaiting(c)
	c.trace = newTracers(cfg.Tracer)
	return c, nil
}

// Close ends the client. It cancels the work of Do, with the cause ErrClosed,
// and waits for it, while heartbeats go on; it releases all leases, those of
// Acquire at once; and it waits for all goroutines. When ctx ends first it
// returns the context's error and goes on closing behind: call it again to wait
// longer. A lease that could not be released lapses by itself. Work of Do must
// not wait for Close, which waits for it.
func (c *Client) Close(ctx context.Context) error {
	c.closeOnce.Do(func() {
		c.mu.Lock()
		close(c.closing)
		c.mu.Unlock()
		go c.shutdown(context.WithoutCancel(ctx)) // goes on when ctx ends; owned by closed
	})
	select {
	case <-c.closed:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close: %w", ctx.Err())
	}
}

func (c *Client) shutdown(ctx context.Context) {
	defer close(c.closed)
	c.mu.Lock()
	for w := range c.works {
		w.cancel(ErrClosed)
	}
	c.mu.Unlock()

	c.releaseAll(ctx, func(l *Lease) bool { return !l.owned })
	c.working.Wait()
	c.releaseAll(ctx, func(*Lease) bool { return true })
	c.beat.close()
	c.waiting.close(ctx)
	c.mu.Lock()
	c.drained = true
	c.mu.Unlock()
	c.background.Wait()
	c.control.close()
}

// releaseAll releases at once what the filter picks, so that one release that
// hangs doesn't hold up the others. Errors were logged.
func (c *Client) releaseAll(ctx context.Context, pick func(*Lease) bool) {
	c.mu.Lock()
	var picked []*Lease
	for l := range c.leases {
		if pick(l) {
			picked = append(picked, l)
		}
	}
	c.mu.Unlock()

	var releases sync.WaitGroup
	for _, l := range picked {
		releases.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, cleanupTimeout)
			defer cancel()
			_ = l.Release(ctx)
		})
	}
	releases.Wait()
}

func (c *Client) isClosing() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// enter registers a call of Do, so that Close can cancel and wait for it.
func (c *Client) enter(cancel context.CancelCauseFunc) (leave func(), err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.isClosing() {
		return nil, ErrClosed
	}
	w := &work{cancel: cancel}
	c.works[w] = struct{}{}
	c.working.Add(1)
	return func() {
		c.mu.Lock()
		delete(c.works, w)
		c.mu.Unlock()
		c.working.Done()
	}, nil
}

// inBackground runs fn in a goroutine that Close waits for. When Close has
// released everything already, fn is not run.
func (c *Client) inBackground(fn func()) (started bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.drained {
		c.background.Go(fn)
	}
	return !c.drained
}

// onControl runs fn over the control pool, and once more over a new connection when
// the old one turns out to be dead: all that is sent there can be repeated. After Close it uses the application's pool.
func (c *Client) onControl(ctx context.Context, fn func(*pgx.Conn) error) error {
	for first := true; ; {
		next, err := c.onControlOnce(ctx, fn)
		if next == giveUp || next == once && !first || ctx.Err() != nil {
			return err
		}
		first = first && next == anew
	}
}

// next is what follows on a try over the control pool.
type next int

const (
	giveUp next = iota // or it was done
	once               // the connection, or its pool, failed: the next may be better
	anew               // nothing was sent, because another's failure had the pool replaced
)

func (c *Client) onControlOnce(ctx context.Context, fn func(*pgx.Conn) error) (then next, err error) {
	pool, err := c.control.get(ctx)
	if errors.Is(err, ErrClosed) {
		pool, err = c.pool, nil
	}
	if err != nil {
		return giveUp, err
	}
	err = onPool(ctx, pool, fn)
	if err == nil || errors.Is(err, pgx.ErrNoRows) || errors.Is(err, ErrLost) { // ErrLost: what a release was told
		return giveUp, err
	}
	replaced := c.control.isReplaced(pool)
	if _, unsent := errors.AsType[*notSentError](err); unsent && replaced {
		return anew, err
	}
	if !answered(err) {
		c.control.replace(pool)
		return once, err
	}
	if replaced {
		return once, err
	}
	return giveUp, err
}

// runner runs something on a connection: onControl or onApp.
type runner func(ctx context.Context, fn func(*pgx.Conn) error) error

// onApp runs fn over the application's pool, or over the control pool while all of the application's connections are in use.
func (c *Client) onApp(ctx context.Context, fn func(*pgx.Conn) error) error {
	if stat := c.pool.Stat(); stat.AcquiredConns() >= stat.MaxConns() {
		return c.onControl(ctx, fn)
	}
	return onPool(ctx, c.pool, fn)
}

func onPool(ctx context.Context, pool *pgxpool.Pool, fn func(*pgx.Conn) error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return &notSentError{err}
	}
	defer giveBack(ctx, conn)
	return fn(conn.Conn())
}

// giveBack returns a connection to its pool; one to a server that was demoted, or that
// an address led to for a moment, is closed, since it would refuse each write for as
// long as it lives.
func giveBack(ctx context.Context, conn *pgxpool.Conn) {
	if c := conn.Conn(); c.PgConn().ParameterStatus("in_hot_standby") == "on" {
		_ = c.Close(ctx)
	}
	conn.Release()
}

// giveBackWatched ends the watch on a connection and returns it to its pool; bit says
// that it was cut, and so is closed.
func giveBackWatched(ctx context.Context, conn *pgxpool.Conn, dog *watchdog) (bit bool) {
	if bit = dog.stop(); bit { // whatever was answered on it before that
		_ = conn.Conn().Close(ctx)
	}
	giveBack(ctx, conn)
	return bit
}

// notSentError marks an error before anything was sent: the outcome is known.
type notSentError struct{ error }

func (e *notSentError) Unwrap() error   { return e.error }
func (*notSentError) SafeToRetry() bool { return true }
