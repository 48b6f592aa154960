package faultproxy

import (
	"bytes"
	"time"
)

// Fault happens once, to the first message from a client that contains Match. The
// server gets the message, the reply is lost, and the connection breaks.
type Fault struct {
	Match string
	Lose  bool          // the server never gets the message
	Delay time.Duration // nothing is lost, the reply comes late
	Hold  bool          // nothing is lost, all stalls: with Lose before the message, else before its reply
	// Cut breaks the client's connection at once, and nobody tells the server, not
	// even a cancel request: it goes on, and notices with its reply, after Delay.
	Cut bool

	reached chan time.Time
}

// Next arms a fault and returns a channel that tells when it happened.
func (p *Proxy) Next(f Fault) <-chan time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	f.reached = make(chan time.Time, 1)
	p.fault = f
	return f.reached
}

// verdict says what becomes of a message.
type verdict int

const (
	forward verdict = iota
	lose            // with its connection
	cut             // it goes on, and then its sender's connection breaks
)

// cancelRequest begins the only message of a connection that cancels.
var cancelRequest = []byte{0, 0, 0, 16, 4, 210, 22, 46}

// request decides on a message to the server.
func (p *Proxy) request(message []byte, replies chan<- Fault) verdict {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.deaf && bytes.HasPrefix(message, cancelRequest) {
		return lose
	}
	f := p.fault
	if f.Match == "" || !bytes.Contains(message, []byte(f.Match)) {
		return forward
	}
	p.fault = Fault{}
	f.reached <- time.Now()
	switch {
	case f.Lose && f.Hold:
		p.stall = true
		return forward
	case f.Lose:
		return lose
	case f.Cut:
		p.deaf = true
		replies <- f
		return cut
	}
	replies <- f
	return forward
}

// reply decides on an answer to the client.
func (p *Proxy) reply(replies <-chan Fault) verdict {
	select {
	case f := <-replies:
		if f.Hold {
			p.SetStall(true)
			return forward
		}
		time.Sleep(f.Delay) //nolint:forbidigo // it is the fault
		if f.Delay == 0 || f.Cut {
			return lose
		}
	default:
	}
	return forward
}
