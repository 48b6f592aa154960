package pglock

import (
	"net"
	"time"
)

// Spread is over how much time the waiters of a lapsed lease come back.
var Spread = spread

// Watchdog is a watchdog whose timer can be made to fire late.
type Watchdog struct{ *watchdog }

// Watch starts a watchdog.
func Watch(socket net.Conn, until time.Time) Watchdog { return Watchdog{watch(socket, until)} }

// Extend gives it more time.
func (w Watchdog) Extend(d time.Duration) { w.extend(d) }

// Stop ends it.
func (w Watchdog) Stop() bool { return w.stop() }

// Fire is what the timer does.
func (w Watchdog) Fire() { w.cut() }
