package pgtemp

import (
	"context"
	"errors"
	"fmt"
	"sync"
)

// Standby starts a hot standby that streams from the server, for tests of a failover. It
// is ready to read and belongs to the caller, who stops it; pg_promote() makes it a
// server of its own. Its settings are those of the server.
//
// It needs pg_basebackup beside the server's binaries: without it the error matches
// fs.ErrNotExist. A server in a container has none: that is errors.ErrUnsupported. On
// any error nothing is left.
func (s *Server) Standby(ctx context.Context) (*Server, error) {
	ctx, cancel := context.WithTimeout(ctx, location{}.patience())
	defer cancel()
	b, err := s.backend.standby(ctx)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: standby of %s: %w", s.backend.source(), err)
	}
	version, err := awaitReady(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("pgtemp: standby of %s: %w", s.backend.source(), errors.Join(err, b.stop()))
	}
	return &Server{backend: b, version: version, stop: sync.OnceValue(b.stop)}, nil
}
