package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/spf13/cobra"
)

// eventDone is what a client logs in the end.
const eventDone = "done"

// purchase is what a client wants: an order, and a charge for it.
type purchase struct {
	key    string
	order  int64 // 0: place one first
	amount int64
	card   string
}

func clientCommand(p *process) *cobra.Command {
	r := retrier{http: &http.Client{Timeout: 2 * chargeTimeout}}
	var buy purchase
	var copies int
	cmd := &cobra.Command{
		Use:   "client",
		Short: "A client: places an order, charges it, and retries until it is answered",
		Args:  noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if copies < 1 || buy.amount <= 0 || r.account == "" {
				return cli.UsageError{Err: errors.New("--copies and --amount must be at least 1, and --account not empty")}
			}
			if buy.key == "" {
				buy.key = rand.Text()
			}
			r.log = p.log(cmd)
			return r.buyAtOnce(cmd.Context(), buy, copies)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&r.url, "server", "http://127.0.0.1:8080", "the service's URL")
	flags.StringVar(&r.account, "account", "alice", "who buys")
	flags.DurationVar(&r.giveUp, "give-up", 5*time.Minute, "how long to retry a request")
	flags.StringVar(&buy.key, "key", "", "the Idempotency-Key; the same buys nothing more. Default: a new one")
	flags.Int64Var(&buy.order, "order", 0, "charge this order; default: place one")
	flags.Int64Var(&buy.amount, "amount", 1250, "in cents")
	flags.StringVar(&buy.card, "card", "tok_visa", "the card")
	flags.IntVar(&copies, "copies", 1, "send everything so many times at once")
	return cmd
}

// buyAtOnce sends the same purchase several times, and wants one answer.
func (r *retrier) buyAtOnce(ctx context.Context, what purchase, copies int) error {
	answers, errs := make([]answer, copies), make([]error, copies)
	var wg sync.WaitGroup
	for i := range copies {
		wg.Go(func() { answers[i], errs[i] = r.buy(ctx, what) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for _, a := range answers {
		r.log.InfoContext(ctx, eventDone, "status", a.status, "replayed", a.replayed, "body", string(a.body))
	}
	for _, a := range answers {
		if a.status != http.StatusCreated {
			return fmt.Errorf("%d: %s", a.status, a.body)
		}
		if !bytes.Equal(a.body, answers[0].body) {
			return fmt.Errorf("one purchase got two answers: %s and %s", answers[0].body, a.body)
		}
	}
	return nil
}

// buy places the order and charges it. One key does for both: they are two operations.
// A real client stores the key before it sends anything, so that it still has it when it
// comes back from a crash.
func (r *retrier) buy(ctx context.Context, what purchase) (answer, error) {
	if what.order == 0 {
		placed, err := r.postJSON(ctx, "/orders", what.key, order{Amount: what.amount})
		if err != nil || placed.status != http.StatusCreated {
			return placed, err
		}
		var o order
		if err := json.Unmarshal(placed.body, &o); err != nil {
			return placed, err
		}
		what.order = o.ID
	}
	return r.postJSON(ctx, "/charges", what.key, chargeRequest{Order: what.order, Amount: what.amount, Card: what.card})
}

func (r *retrier) postJSON(ctx context.Context, path, key string, v any) (answer, error) {
	body, err := json.Marshal(v)
	if err != nil {
		return answer{}, err
	}
	return r.post(ctx, path, key, body)
}
