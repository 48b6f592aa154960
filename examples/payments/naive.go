package main

import (
	"encoding/json"
	"net/http"
)

// HOW NOT TO DO IT. This file is the same API without idempotency, as it is often
// written. Don't copy it; order.go and charge.go are next door.

func (s *service) naiveRoutes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /orders", s.naiveOrder)
	mux.HandleFunc("POST /charges", s.naiveCharge)
	return mux
}

// naiveOrder places another order each time.
func (s *service) naiveOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 {
		problem(w, http.StatusBadRequest, "The body must be an order, with an amount in cents.")
		return
	}
	account, _ := accountOf(r)
	err := s.pool.QueryRow(r.Context(), `INSERT INTO `+s.orders+` (account, amount) VALUES ($1, $2) RETURNING id`,
		string(account), o.Amount).Scan(&o.ID)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	send(w, jsonReply(http.StatusCreated, o))
}

// naiveCharge charges the card each time, and may be killed before it has written so.
func (s *service) naiveCharge(w http.ResponseWriter, r *http.Request) {
	var req chargeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Amount <= 0 || req.Card == "" {
		problem(w, http.StatusBadRequest, "The body must be a charge: order, amount in cents, card.")
		return
	}
	charged, err := s.provider.charge(r.Context(), "", req)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	_, err = s.pool.Exec(r.Context(), `INSERT INTO `+s.charges+` (id, order_id, amount) VALUES ($1, $2, $3)`,
		charged.ID, req.Order, charged.Amount)
	if err != nil {
		s.refuse(w, r, err)
		return
	}
	send(w, jsonReply(http.StatusCreated, chargeReply{Charge: charged.ID, Order: req.Order, Amount: charged.Amount}))
}
