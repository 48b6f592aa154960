package idem

import (
	"context"
	"io"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"
)

// copyFrom runs a COPY of text, for which a pgx.Tx has no method: one that remembers what
// PostgreSQL said is told. When it returns, r is read no longer. Its error matches that of
// a ctx that has ended: pgconn's may be that of the connection, which it closes then.
func (l *loading) copyFrom(ctx context.Context, r io.Reader, sql string) (pgconn.CommandTag, error) {
	copying, cancel := context.WithCancel(ctx)
	defer cancel()
	g := &gate{r: r, left: cancel}
	tag, err := l.tx.Conn().PgConn().CopyFrom(copying, g, sql)
	g.shut()
	if err != nil && ctx.Err() != nil {
		err = interrupted(ctx, err)
	}
	if tx, ok := l.tx.(interface{ note(err error) error }); ok {
		err = tx.note(err)
	}
	return tag, err
}

// gate is a reader until it is shut. pgconn reads in a goroutine, and doesn't wait for it
// where the connection breaks, as it does when ctx ends; and waits for ever for one that
// ended in Read, where left is called.
type gate struct {
	mu     sync.Mutex // held while r is read
	r      io.Reader
	left   func()
	isShut bool
}

func (g *gate) Read(p []byte) (n int, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.isShut {
		return 0, io.ErrClosedPipe
	}
	returned := false
	defer func() {
		if !returned {
			g.left()
		}
	}()
	n, err = g.r.Read(p)
	returned = true
	return n, err
}

// shut waits for a Read that is under way, and lets no other in.
func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.isShut = true
}
