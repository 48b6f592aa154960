package main

import (
	"encoding/json"
	"log/slog"
	"net/http"
	"sync"

	"github.com/spf13/cobra"
)

// cardProvider is the other system: it charges cards, and writes that into a ledger of
// its own. It can be told to wait at the two moments at which a kill hurts.
type cardProvider struct {
	ledger     *ledger
	ignoreKeys bool
	log        *slog.Logger

	mu    sync.Mutex
	calls map[string]*providerCall // by key
	hold  string                   // where the next charge waits: atBooking, atAnswer, or nowhere
	gate  chan struct{}            // closed to let it go on
}

const (
	atBooking = "booking"
	atAnswer  = "answer"
)

// What the provider logs.
const (
	eventWaits  = "waits before it books"
	eventBooked = "booked"
	eventHolds  = "holds its answer back"
	eventShared = "the same key again"
)

// open is closed: what waits for it goes on.
var open = func() chan struct{} { c := make(chan struct{}); close(c); return c }()

// providerCall is a charge that was asked for. Calls with the same key share it.
type providerCall struct {
	done   chan struct{} // closed when it is booked, or failed
	charge providerCharge
	err    error
}

func providerCommand(p *process) *cobra.Command {
	var address, file string
	var ignoreKeys bool
	cmd := &cobra.Command{
		Use:   "provider",
		Short: "The fake card provider: POST /charges, GET /charges?key=KEY",
		Long: `The fake card provider: POST /charges, GET /charges?key=KEY.

POST /hold/booking and POST /hold/answer make the next charge wait before it is
booked, or before it is answered, until POST /go.`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			l, err := openLedger(file)
			if err != nil {
				return err
			}
			defer func() { _ = l.close() }() // each line is synced
			c := newCardProvider(l, ignoreKeys, p.log(cmd))
			return listen(cmd.Context(), address, c.routes(), c.log)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&address, "listen", "127.0.0.1:8081", "the address")
	flags.StringVar(&file, "ledger", "", "a file that keeps the charges; default: memory")
	flags.BoolVar(&ignoreKeys, "ignore-keys", false, "charge again for the same Idempotency-Key")
	return cmd
}

func newCardProvider(l *ledger, ignoreKeys bool, log *slog.Logger) *cardProvider {
	p := &cardProvider{ledger: l, ignoreKeys: ignoreKeys, log: log, calls: map[string]*providerCall{}, gate: make(chan struct{})}
	for _, c := range l.all() {
		p.calls[c.Key] = &providerCall{done: open, charge: c}
	}
	return p
}

func (p *cardProvider) routes() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /charges", p.postCharge)
	mux.HandleFunc("GET /charges", p.getCharges)
	for _, where := range []string{atBooking, atAnswer} {
		mux.HandleFunc("POST /hold/"+where, func(http.ResponseWriter, *http.Request) { p.setHold(where) })
	}
	mux.HandleFunc("POST /go", func(http.ResponseWriter, *http.Request) { p.letGo() })
	return mux
}

func (p *cardProvider) postCharge(w http.ResponseWriter, r *http.Request) {
	var req chargeRequest
	if err := json.NewDecoder(r.Body).Decode(&req); err != nil || req.Amount <= 0 {
		problem(w, http.StatusBadRequest, "The body must be a charge: amount in cents, card.")
		return
	}
	key := r.Header.Get("Idempotency-Key")
	call, first := p.call(key)
	var gate <-chan struct{} = open
	if first {
		gate = p.book(call, key, req.Amount) // nobody who goes away stops it
	} else {
		p.log.InfoContext(r.Context(), eventShared)
	}
	for _, wait := range []<-chan struct{}{call.done, gate} {
		select {
		case <-wait:
		case <-r.Context().Done(): // nobody is there to be answered
			return
		}
	}
	if call.err != nil {
		problem(w, http.StatusInternalServerError, "The charge was not booked.")
		return
	}
	send(w, jsonReply(http.StatusCreated, call.charge))
}

// call finds the call with this key, or makes the first one.
func (p *cardProvider) call(key string) (call *providerCall, first bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if call := p.calls[key]; call != nil && key != "" && !p.ignoreKeys {
		return call, false
	}
	call = &providerCall{done: make(chan struct{})}
	p.calls[key] = call
	return call, true
}

// book charges the card. What it returns is closed when that may be answered.
func (p *cardProvider) book(call *providerCall, key string, amount int64) (answer <-chan struct{}) {
	hold, gate := p.takeHold()
	if hold == atBooking {
		p.log.Info(eventWaits)
		<-gate
	}
	call.charge, call.err = p.ledger.add(key, amount)
	if call.err != nil {
		p.mu.Lock()
		delete(p.calls, key) // it may be tried again
		p.mu.Unlock()
		p.log.Error("not booked", "err", call.err)
	} else {
		p.log.Info(eventBooked, "charge", call.charge.ID)
	}
	close(call.done)
	if hold == atAnswer {
		p.log.Info(eventHolds)
		return gate
	}
	return open
}

// getCharges finds charges by the key that they were asked for with, also those whose
// key was ignored.
func (p *cardProvider) getCharges(w http.ResponseWriter, r *http.Request) {
	found := []providerCharge{}
	for _, c := range p.ledger.all() {
		if key := r.FormValue("key"); key == "" || key == c.Key {
			found = append(found, c)
		}
	}
	send(w, jsonReply(http.StatusOK, found))
}

func (p *cardProvider) setHold(where string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.hold = where
}

// takeHold is for one charge only.
func (p *cardProvider) takeHold() (where string, gate <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	where, p.hold = p.hold, ""
	return where, p.gate
}

func (p *cardProvider) letGo() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.gate)
	p.gate = make(chan struct{})
}
