package main

import (
	"context"
	"net/http"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
)

// chargeTimeout bounds one attempt, the provider's part included.
const chargeTimeout = 30 * time.Second

// chargeRequest is the body of POST /charges. Amount is in cents.
type chargeRequest struct {
	Order  int64  `json:"order"`
	Amount int64  `json:"amount"`
	Card   string `json:"card"`
}

// chargeReply is the answer. It is made of what the provider and the request say, so
// that it is the same bytes whoever stores it.
type chargeReply struct {
	Charge string `json:"charge"`
	Order  int64  `json:"order"`
	Amount int64  `json:"amount"`
}

// charge charges a card once a key. The money moves on another system, which can't
// commit together with our database, so there are three steps: the key is claimed and
// committed, under a lease that is kept alive; the card is charged, with a key that is
// the same for all attempts; the reply and our own row are committed in one transaction.
// Whoever dies in between leaves the claim, and the next attempt finds out at the
// provider how far that one had come.
func (s *service) charge(ctx context.Context, key idem.Key, fp idem.Fingerprint, req chargeRequest) (reply idem.Reply, replayed bool, err error) {
	attempt, err := s.store.BeginRecover(ctx, key, fp, func(ctx context.Context) (idem.Recovery, error) {
		return s.lookUp(ctx, key, req)
	})
	if err != nil {
		return reply, false, err // in progress, or another request's key: nothing was done
	}
	if reply, replayed = attempt.Replay(); replayed {
		return reply, true, nil
	}
	reply, err = s.attempt(ctx, attempt, req)
	return reply, false, err
}

// attempt charges the card under a claim.
func (s *service) attempt(ctx context.Context, attempt *idem.Attempt, req chargeRequest) (idem.Reply, error) {
	// From here on it is worth finishing, also when the client hangs up.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), chargeTimeout)
	defer cancel()
	// On every way out but Finish the key is given back, and the next attempt looks.
	defer func() { _ = attempt.Release(ctx) }()

	// The call ends early when the claim is lost: then another attempt may be at it.
	work, stop := attempt.Context(ctx)
	defer stop()
	charged, err := s.provider.charge(work, attempt.ExternalKey(), req)
	if err != nil {
		return idem.Reply{}, err // it may have happened all the same
	}
	reply, record := s.outcome(ctx, req, charged)
	if err := attempt.Finish(ctx, reply, record); err != nil {
		return idem.Reply{}, err
	}
	s.log.InfoContext(ctx, eventStored, "order", req.Order, "charge", charged.ID)
	return reply, nil
}

// lookUp finds out what became of an attempt that nobody finished. It never guesses:
// while the provider can't say, the charge stays in progress, for everybody to see.
func (s *service) lookUp(ctx context.Context, key idem.Key, req chargeRequest) (idem.Recovery, error) {
	charged, found, err := s.provider.find(ctx, key.ExternalKey())
	switch {
	case err != nil:
		return idem.Unknown, err
	case found:
		s.log.InfoContext(ctx, eventFound, "order", req.Order, "charge", charged.ID)
		return idem.DoneWith(s.outcome(ctx, req, charged)), nil
	case s.provider.honoursKeys:
		// The first call may still be on its way. It has the same key as the one that
		// we make now, so that both are one charge, whichever comes first.
		s.log.InfoContext(ctx, eventAbsent, "order", req.Order)
		return idem.Absent, nil
	default:
		// The same, but another call would be another charge. It stays so until it is
		// found, or until an operator who knows has the key forgotten (Store.Forget).
		s.log.InfoContext(ctx, eventUnknown, "order", req.Order)
		return idem.Unknown, nil
	}
}

// outcome is what a charge leads to here: the reply, and the row that goes with it.
func (s *service) outcome(ctx context.Context, req chargeRequest, charged providerCharge) (idem.Reply, func(pgx.Tx) error) {
	reply := jsonReply(http.StatusCreated, chargeReply{Charge: charged.ID, Order: req.Order, Amount: charged.Amount})
	return reply, func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, `INSERT INTO `+s.charges+` (id, order_id, amount) VALUES ($1, $2, $3)`,
			charged.ID, req.Order, charged.Amount)
		return err
	}
}
