package main

import "context"

// peer is one kind of lock.
type peer struct {
	name string
	// refuses is what refuses the write of a holder whose lock is gone.
	refuses string
	// cycle acquires and releases a lock that nobody else wants.
	cycle func(context.Context) error
}

// server is one that runs for the length of the program, and the locks on it.
type server struct {
	peers []peer
	stop  []func()
}

// later runs f when the server is closed, the last one first.
func (s *server) later(f func()) { s.stop = append(s.stop, f) }

func (s *server) close() {
	for i := len(s.stop) - 1; i >= 0; i-- {
		s.stop[i]()
	}
}
