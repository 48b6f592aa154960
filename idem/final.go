package idem

// Final ends a function of Do or DoTx with an answer that is kept although nothing
// was done: what the function wrote is undone, the reply is stored, and the call
// and its replays return it as a Result without an error. It is for a refusal that
// stays one: the account is closed, the amount is too high.
//
// A serialization failure, a deadlock, a broken connection and a context that
// ended don't stay, so they are never made final, not even where they are wrapped
// together with Final.
func Final(r Reply) error { return &finalError{reply: r} }

// FinalKeep is Final, but what the function wrote is kept.
func FinalKeep(r Reply) error { return &finalError{reply: r, keep: true} }

type finalError struct {
	reply Reply
	keep  bool
}

func (e *finalError) Error() string {
	return "idem: a final reply, for Do or DoTx to store"
}
