package main

import (
	"encoding/json"
	"errors"
	"net/http"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// handleCharge is POST /charges. The key, the fingerprint and the limit of the body are
// idemhttp's; the claim is its own, since a recovery has to ask the provider and a row of
// ours goes with the reply. Middleware.Streaming of idemhttp, which claims under a lease
// too, is shorter where neither is so.
func (s *service) handleCharge(w http.ResponseWriter, r *http.Request) {
	claim, err := s.once.Read(w, r)
	if err != nil {
		idemhttp.WriteError(w, err) // 400, 413
		return
	}
	var req chargeRequest
	if err := json.Unmarshal(claim.Body, &req); err != nil || req.Amount <= 0 || req.Card == "" {
		problem(w, http.StatusBadRequest, "The body must be a charge: order, amount in cents, card.")
		return
	}
	// What is checked before the claim must be as true for a retry as it was for the
	// first request. That there is such an order is; that it isn't paid yet is not.
	var known bool
	err = s.pool.QueryRow(r.Context(), `SELECT EXISTS (SELECT FROM `+s.orders+` WHERE id = $1 AND account = $2)`,
		req.Order, string(claim.Key.Scope)).Scan(&known)
	switch {
	case err != nil:
		s.refuse(w, r, err)
		return
	case !known:
		problem(w, http.StatusNotFound, "There is no such order.")
		return
	}
	reply, replayed, err := s.charge(r.Context(), claim.Key, claim.Fingerprint, req)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	idemhttp.WriteResult(w, idem.Result{Reply: reply, Replayed: replayed})
}

// refuse answers when nothing was stored. Whatever it says, the client may send the
// same request again, and does where there is a Retry-After.
func (s *service) refuse(w http.ResponseWriter, r *http.Request, err error) {
	if !errors.Is(err, idem.ErrInProgress) && !errors.Is(err, idem.ErrMismatch) {
		s.log.WarnContext(r.Context(), eventFailed, "err", err)
	}
	if errors.Is(err, errProvider) && !errors.Is(err, idem.ErrInProgress) {
		w.Header().Set("Retry-After", "1")
		problem(w, http.StatusServiceUnavailable, "Whether the card was charged is not known yet. Send the same request again.")
		return
	}
	idemhttp.WriteError(w, err) // in progress 409, another request's key 422, the database's 503 or 500
}
