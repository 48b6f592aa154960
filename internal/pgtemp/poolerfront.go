package pgtemp

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
)

// cancelCode begins a request to cancel a statement, after its length.
const cancelCode = 80877102

// maxStartup is the longest first message that PostgreSQL takes.
const maxStartup = 10000

// front stands before a PgBouncer 1.18, which may end itself when a server that it
// cancels a statement on says something (https://github.com/pgbouncer/pgbouncer/issues/822): it
// passes everything on but requests to cancel.
type front struct {
	listener net.Listener
	to       string // the PgBouncer's socket
	serving  sync.WaitGroup

	mu     sync.Mutex
	closed bool
	conns  map[net.Conn]bool
}

// newFront listens on the socket at, until it is closed.
func newFront(at, to string) (*front, error) {
	listener, err := net.Listen("unix", at)
	if err != nil {
		return nil, err
	}
	f := &front{listener: listener, to: to, conns: map[net.Conn]bool{}}
	f.serving.Go(f.serve)
	return f, nil
}

func (f *front) serve() {
	for {
		client, err := f.listener.Accept()
		if err != nil {
			return // it is closed
		}
		f.serving.Go(func() { f.pass(client) })
	}
}

// pass serves one connection until either side ends it.
func (f *front) pass(client net.Conn) {
	defer f.drop(client)
	if !f.keep(client) {
		return
	}
	first, err := startup(client)
	if err != nil || binary.BigEndian.Uint32(first[4:]) == cancelCode {
		return
	}
	server, err := net.Dial("unix", f.to)
	if err != nil {
		return
	}
	defer f.drop(server)
	if !f.keep(server) {
		return
	}
	if _, err := server.Write(first); err != nil { // at once: PgBouncer refuses parts of it
		return
	}
	f.serving.Go(func() {
		defer f.drop(server)
		_, _ = io.Copy(server, client)
	})
	_, _ = io.Copy(client, server)
}

// startup reads a client's first message, which begins with its length.
func startup(client io.Reader) ([]byte, error) {
	head := make([]byte, 8)
	if _, err := io.ReadFull(client, head); err != nil {
		return nil, err
	}
	length := int(binary.BigEndian.Uint32(head))
	if length < len(head) || length > maxStartup {
		return nil, fmt.Errorf("a first message of %d bytes", length)
	}
	first := append(head, make([]byte, length-len(head))...)
	_, err := io.ReadFull(client, first[len(head):])
	return first, err
}

// keep remembers a connection for close, and says whether that is still to come.
func (f *front) keep(conn net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.conns[conn] = true
	return !f.closed
}

func (f *front) drop(conn net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.conns, conn)
	_ = conn.Close() // may be the second time
}

// close ends all connections and waits for their goroutines.
func (f *front) close() error {
	err := f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for conn := range f.conns {
		_ = conn.Close()
	}
	f.mu.Unlock()
	f.serving.Wait()
	if errors.Is(err, net.ErrClosed) {
		return nil
	}
	return err
}
