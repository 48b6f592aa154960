package pgtemp

import (
	"context"
	"fmt"
)

// Shutdown is a way to end a server.
type Shutdown int

const (
	// Fast ends all connections and writes everything out, as pg_ctl stop -m fast.
	Fast Shutdown = iota
	// Immediate is a crash, as pg_ctl stop -m immediate: the next start recovers what
	// was committed from the log, and empties unlogged tables.
	Immediate
)

// Restart ends the server and starts it again on the same data, for tests. It returns
// when the server takes connections, within a minute. The URLs stay, the Pid changes.
//
// A container ends with its server: that is errors.ErrUnsupported, and nothing has
// happened. After any other error the server may be down, and is only good for Stop. A
// Restart or a Stop beside it waits for its turn.
func (s *Server) Restart(ctx context.Context, how Shutdown) error {
	s.turn.Lock()
	defer s.turn.Unlock()
	if err := s.backend.restart(how); err != nil {
		return fmt.Errorf("pgtemp: restart %s: %w", s.backend.source(), err)
	}
	ctx, cancel := context.WithTimeout(ctx, location{}.patience())
	defer cancel()
	if _, err := awaitReady(ctx, s.backend); err != nil {
		return fmt.Errorf("pgtemp: restart %s: %w", s.backend.source(), err)
	}
	return nil
}
