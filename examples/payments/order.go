package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/idem/idemhttp"
)

// order is the body of POST /orders, and its answer.
type order struct {
	ID     int64 `json:"order,omitempty"`
	Amount int64 `json:"amount"` // in cents
}

// placeOrder is POST /orders. An order is in this database only, so the simple way is
// enough: idemhttp has claimed the key, and the order and the reply are committed with
// that claim, in the transaction that idem.Tx gives. A crash leaves all of it or nothing.
func (s *service) placeOrder(w http.ResponseWriter, r *http.Request) {
	var o order
	if err := json.NewDecoder(r.Body).Decode(&o); err != nil || o.Amount <= 0 {
		problem(w, http.StatusBadRequest, "The body must be an order, with an amount in cents.")
		return
	}
	account, _ := accountOf(r) // authenticated
	err := idem.Tx(r.Context()).QueryRow(r.Context(), `INSERT INTO `+s.orders+` (account, amount) VALUES ($1, $2) RETURNING id`,
		string(account), o.Amount).Scan(&o.ID)
	if err != nil {
		idemhttp.WriteError(w, fmt.Errorf("place order: %w", err)) // rolled back, and not stored
		return
	}
	send(w, jsonReply(http.StatusCreated, o))
}

// maxBody is the largest body of a request, in bytes.
const maxBody = 64 << 10

// once protects a handler by the header Idempotency-Key. A key is one account's.
func once(store *idem.Store) (*idemhttp.Middleware, error) {
	return idemhttp.New(store, idemhttp.Config{
		Keys:       idemhttp.Required,
		Strict:     true, // "in double quotes", as the draft asks for it
		MaxRequest: maxBody,
		Scope: func(r *http.Request) (idem.Scope, error) {
			account, ok := accountOf(r)
			if !ok {
				return "", errors.New("authenticate comes first")
			}
			return account, nil
		},
	})
}
