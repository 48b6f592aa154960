package main

import (
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// maxBody is the largest body of a request, in bytes.
const maxBody = 64 << 10

// handleCharge is POST /charges. It does for a claim under a lease what idemhttp does
// for one in a transaction: the key, the fingerprint, and an answer for each error.
// Middleware.Streaming of idemhttp claims under a lease too, and is shorter where no
// recovery has to ask a peer, no row of ours goes with the reply, and the reply may leave
// before it is stored.
func (s *service) handleCharge(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		problem(w, http.StatusBadRequest, "The body can't be read, or is too large.")
		return
	}
	var req chargeRequest
	if err := json.Unmarshal(body, &req); err != nil || req.Amount <= 0 || req.Card == "" {
		problem(w, http.StatusBadRequest, "The body must be a charge: order, amount in cents, card.")
		return
	}
	account, _ := accountOf(r) // authenticated
	key := idem.Key{Operation: "payments.charge", Scope: account, Key: keyOf(r.Header)}
	// What is checked before the claim must be as true for a retry as it was for the
	// first request. That there is such an order is; that it isn't paid yet is not.
	var known bool
	err = s.pool.QueryRow(r.Context(), `SELECT EXISTS (SELECT FROM orders WHERE id = $1 AND account = $2)`,
		req.Order, string(account)).Scan(&known)
	switch {
	case err != nil:
		s.refuse(w, r, err)
		return
	case !known:
		problem(w, http.StatusNotFound, "There is no such order.")
		return
	}
	fp := idem.FingerprintOf([]byte("POST /charges"), body)
	reply, replayed, err := s.charge(r.Context(), key, fp, req)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	send(w, reply, replayed)
}

// keyOf reads the key, in double quotes as the draft asks for it. It is empty, which
// idem refuses, when it is anything else.
func keyOf(h http.Header) string {
	lines := h.Values("Idempotency-Key")
	if len(lines) != 1 {
		return ""
	}
	key, opened := strings.CutPrefix(lines[0], `"`)
	key, closed := strings.CutSuffix(key, `"`)
	if !opened || !closed || strings.ContainsAny(key, `"\`) {
		return ""
	}
	return key
}

// refuse answers when nothing was stored. Whatever it says, the client may send the
// same request again, and does where there is a Retry-After.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, idem.ErrInvalidKey):
		problem(w, http.StatusBadRequest, "Idempotency-Key must be one header line with a string in double quotes, of visible ASCII.")
	case errors.Is(err, idem.ErrMismatch), errors.Is(err, idem.ErrInProgress), errors.Is(err, idem.ErrReplayUnavailable):
		idemhttp.WriteError(w, err) // 422, 409, 409
	case errors.Is(err, idem.ErrFenced): // another attempt has taken over, and will answer
		idemhttp.WriteError(w, &idem.InProgressError{})
	default: // the provider's or the database's: who knows what was done
		s.log.WarnContext(r.Context(), eventFailed, "err", err)
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "Whether the card was charged is not known yet. Send the same request again.")
	}
}
