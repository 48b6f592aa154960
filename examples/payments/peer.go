package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
)

// errProvider says that the provider did not answer. What it did is not known.
var errProvider = errors.New("the card provider did not answer")

// providerCharge is a charge as the provider tells of it.
type providerCharge struct {
	ID     string `json:"id"`
	Amount int64  `json:"amount"`
	Key    string `json:"key,omitempty"` // that it was asked for with
}

// peer is the provider, as the service calls it.
type peer struct {
	url  string
	http *http.Client
	// honoursKeys says that two calls with one key are one charge, for as long as
	// clients may retry. It is from the provider's documentation, and nothing that could
	// be found out by trying.
	honoursKeys bool
}

// charge charges a card. After errProvider it may have been charged.
func (p *peer) charge(ctx context.Context, key string, req chargeRequest) (charged providerCharge, err error) {
	body, err := json.Marshal(chargeRequest{Amount: req.Amount, Card: req.Card})
	if err != nil {
		return charged, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, p.url+"/charges", bytes.NewReader(body))
	if err != nil {
		return charged, err
	}
	// With this header net/http would send a request again by itself when its
	// connection breaks, if it could get the body again. That is ours to decide.
	r.GetBody = nil
	if key != "" {
		r.Header.Set("Idempotency-Key", key)
	}
	return charged, p.do(r, http.StatusCreated, &charged)
}

// find looks a charge up by the key that it was asked for with.
func (p *peer) find(ctx context.Context, key string) (charged providerCharge, found bool, err error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/charges?key="+url.QueryEscape(key), nil)
	if err != nil {
		return charged, false, err
	}
	var all []providerCharge
	if err := p.do(r, http.StatusOK, &all); err != nil || len(all) == 0 {
		return charged, false, err
	}
	return all[0], true, nil
}

func (p *peer) do(r *http.Request, want int, answer any) error {
	resp, err := p.http.Do(r)
	if err != nil {
		return fmt.Errorf("%w: %w", errProvider, err)
	}
	body, err := io.ReadAll(resp.Body)
	_ = resp.Body.Close() // it was read to the end, or is broken
	switch {
	case err != nil:
		return fmt.Errorf("%w: %w", errProvider, err)
	case resp.StatusCode != want:
		return fmt.Errorf("%w: status %d", errProvider, resp.StatusCode)
	}
	if err := json.Unmarshal(body, answer); err != nil {
		return fmt.Errorf("%w: %w", errProvider, err)
	}
	return nil
}
