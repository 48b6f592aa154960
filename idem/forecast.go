package idem

import "sync/atomic"

// forecast says how a call of Do begins: a claim at once saves a round trip where there is
// no reply yet, and a look ahead saves two, and a transaction, where there is. So the
// first is for callers who mostly come once, and the second while they come again.
type forecast struct {
	looks atomic.Int64 // calls that look ahead
}

// whileInVain is for how many calls no claim is tried that couldn't be had without a look: at
// SERIALIZABLE none can.
const whileInVain = 100

func (f *forecast) claimAtOnce() bool { return f.looks.Load() <= 0 }

// looked learns from a look: whether there was something, and whether a claim had been
// tried in vain before it.
func (f *forecast) looked(found, inVain bool) {
	n := f.looks.Load()
	switch {
	case found:
		f.looks.CompareAndSwap(n, max(n, 1))
	case inVain:
		f.looks.Store(whileInVain)
	case n > 0:
		f.looks.CompareAndSwap(n, n-1)
	}
}
