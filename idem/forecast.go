package idem

import "sync/atomic"

// forecast says how a call of Do begins: a claim at once saves a round trip where there is
// no reply yet, and a look ahead saves two, and a transaction, where there is. So the
// first is for callers who mostly come once, and the second while they come again.
type forecast struct {
	looks atomic.Int64 // calls that look ahead
}

// whileInVain is for how many calls no claim is tried that could only be had behind a look:
// at SERIALIZABLE all are so.
const whileInVain = 100

func (f *forecast) claimAtOnce() bool { return f.looks.Load() <= 0 }

// looked learns from a look whether there was something.
func (f *forecast) looked(found bool) {
	n := f.looks.Load()
	switch {
	case found:
		f.looks.CompareAndSwap(n, max(n, 1))
	case n > 0:
		f.looks.CompareAndSwap(n, n-1)
	}
}

// triedInVain learns from a claim that was had behind a look, and not at once. Not from one
// that wasn't had at all: then another call is running, which says nothing of the next.
func (f *forecast) triedInVain() { f.looks.Store(whileInVain) }
