package pglock

import (
	"net"
	"sync"
	"time"
)

// watchdog closes a connection that is used for too long, so that the server rolls
// back. It is the timeouts' second half: they end a transaction that the server waits
// in, this one ends a client that waits for the server. A context with a deadline
// would do the same and cost a goroutine for each statement.
type watchdog struct {
	socket net.Conn

	mu    sync.Mutex
	timer *time.Timer
	until time.Time
	// over is set before the connection is given back: a timer that fires late must
	// not cut a connection that somebody else has by then.
	over bool
	bit  bool
}

// watch starts a watchdog.
func watch(socket net.Conn, until time.Time) *watchdog {
	w := &watchdog{socket: socket, until: until}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.timer = time.AfterFunc(time.Until(until), w.cut)
	return w
}

func (w *watchdog) cut() {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch left := time.Until(w.until); {
	case w.over: // it fired late
	case left > 0: // it was given more time
		w.timer.Reset(left)
	default:
		w.bit = true
		_ = w.socket.Close()
	}
}

// extend gives the connection this much time from now, unless it was cut.
func (w *watchdog) extend(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = time.Now().Add(d)
	w.timer.Reset(d)
}

// stop ends the watch, and says whether the connection was cut before: then it is
// nobody's to use again.
func (w *watchdog) stop() (bit bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	w.timer.Stop()
	return w.bit
}
