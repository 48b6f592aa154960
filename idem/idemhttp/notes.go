package idemhttp

import "net/http"

// notes are what a handler said beside its reply.
type notes struct {
	// passing is what WriteError was called with, if another try may succeed.
	passing    error
	keepWrites bool // also of a reply with 4xx
}

func (n *notes) noted() *notes { return n }

// notesOf finds the middleware's writer below what a handler's own middleware has put
// over it; nil when there is none.
func notesOf(w http.ResponseWriter) *notes {
	for {
		switch layer := w.(type) {
		case interface{ noted() *notes }:
			return layer.noted()
		case interface{ Unwrap() http.ResponseWriter }:
			w = layer.Unwrap()
		default:
			return nil
		}
	}
}

// KeepWrites has a handler's writes kept although its reply is 4xx, such as the record
// of a payment that was declined. They are undone otherwise: a stored refusal says
// that nothing was done. Outside of Handler it does nothing.
func KeepWrites(w http.ResponseWriter) {
	if n := notesOf(w); n != nil {
		n.keepWrites = true
	}
}
