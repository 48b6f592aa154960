package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strconv"
)

// scene is one way in which a purchase is asked for more than once.
type scene struct {
	title, intro string
	quiet        bool
	// play makes one purchase under the key, and returns every client's answer to it.
	play func(ctx context.Context, d *demo, key string) ([]event, error)
	// least is what has to be counted at least, or it was another story.
	least tally
}

var scenes = []scene{
	{
		title: "A second time",
		intro: "A client buys, and sends the same requests again.",
		play:  again,
		least: tally{replays: 2},
	},
	{
		title: "At once",
		intro: "The same purchase, many times at once. Single requests are not shown.",
		quiet: true,
		play:  atOnce,
		least: tally{replays: 2, conflicts: 1},
	},
	{
		title: "The service is killed",
		intro: "The provider has charged, and nobody lives to hear it.",
		play:  serverKilled,
		least: tally{replays: 1, takeovers: 1},
	},
	{
		title: "The client is killed",
		intro: "It comes back later, with the key that it had stored.",
		play:  clientKilled,
		least: tally{replays: 2},
	},
	{
		title: "The provider is killed",
		intro: "It has charged, and is gone before it can say so.",
		play:  providerKilled,
		least: tally{replays: 1, takeovers: 1},
	},
	{
		title: "The key of another request",
		intro: "Another amount, and then another card: a mistake of the client's.",
		play:  mismatch,
		least: tally{refused: 2},
	},
	{
		title: "A provider that ignores keys",
		intro: "The service is killed while the provider is about to charge. To charge again\nwould be another charge.",
		play:  unknown,
		least: tally{replays: 1, takeovers: 2, conflicts: 1},
	},
}

func again(ctx context.Context, d *demo, key string) ([]event, error) {
	first, err := d.buyToTheEnd(ctx, key)
	if err != nil {
		return nil, err
	}
	second, err := d.buyToTheEnd(ctx, key)
	return append(first, second...), err
}

func atOnce(ctx context.Context, d *demo, key string) ([]event, error) {
	if err := d.buyHeld(ctx, key, atAnswer, eventHolds, "--copies", strconv.Itoa(d.copies)); err != nil {
		return nil, err
	}
	for refused := d.naive; !refused; { // until one has come while another is at it
		e, err := d.client.await(ctx, eventAnswered)
		if err != nil {
			return nil, err
		}
		refused = e.Path == "/charges" && e.Status == http.StatusConflict
	}
	if err := d.tellProvider(ctx, "/go"); err != nil {
		return nil, err
	}
	return d.client.untilEnd(ctx)
}

func serverKilled(ctx context.Context, d *demo, key string) ([]event, error) {
	if err := d.buyHeld(ctx, key, atAnswer, eventHolds); err != nil {
		return nil, err
	}
	d.kill(d.server)
	if err := d.startServer(ctx); err != nil {
		return nil, err
	}
	return d.client.untilEnd(ctx)
}

func clientKilled(ctx context.Context, d *demo, key string) ([]event, error) {
	if err := d.buyHeld(ctx, key, atAnswer, eventHolds); err != nil {
		return nil, err
	}
	d.kill(d.client)
	if err := d.tellProvider(ctx, "/go"); err != nil {
		return nil, err
	}
	// The naive service gives up with its client.
	if _, err := d.server.await(ctx, eventStored, eventFailed); err != nil {
		return nil, err
	}
	return d.buyToTheEnd(ctx, key)
}

func providerKilled(ctx context.Context, d *demo, key string) ([]event, error) {
	if err := d.buyHeld(ctx, key, atAnswer, eventHolds); err != nil {
		return nil, err
	}
	d.kill(d.provider)
	if err := d.startProvider(ctx); err != nil {
		return nil, err
	}
	return d.client.untilEnd(ctx)
}

// mismatch wants two refusals. The naive service does all that it is told.
func mismatch(ctx context.Context, d *demo, key string) ([]event, error) {
	bought, err := d.buyToTheEnd(ctx, key)
	if err != nil {
		return nil, err
	}
	for _, args := range [][]string{{"--amount", "99900"}, {"--card", "tok_other"}} {
		answers, err := d.buyToTheEnd(ctx, key, args...)
		if err != nil {
			return nil, err
		}
		if got := answers[0].Status; got != http.StatusUnprocessableEntity && !d.naive {
			return nil, fmt.Errorf("%s with the same key: status %d, not 422", args[0], got)
		}
	}
	return bought, nil
}

func unknown(ctx context.Context, d *demo, key string) ([]event, error) {
	d.provider.kill()
	d.server.kill()
	err := errors.Join(d.startProvider(ctx, "--ignore-keys"), d.startServer(ctx, "--provider-ignores-keys"))
	if err != nil {
		return nil, err
	}
	if err := d.buyHeld(ctx, key, atBooking, eventWaits); err != nil {
		return nil, err
	}
	d.kill(d.server)
	if err := d.startServer(ctx, "--provider-ignores-keys"); err != nil {
		return nil, err
	}
	if d.naive { // it asks the provider again, which doesn't wait this time
		answers, err := d.client.untilEnd(ctx)
		return answers, errors.Join(err, d.letBook(ctx))
	}
	if _, err := d.server.await(ctx, eventUnknown); err != nil {
		return nil, err
	}
	if err := d.letBook(ctx); err != nil {
		return nil, err
	}
	return d.client.untilEnd(ctx)
}

// buyHeld starts a client, whose charge the provider holds until it is let go.
func (d *demo) buyHeld(ctx context.Context, key, where, waits string, args ...string) error {
	if err := d.tellProvider(ctx, "/hold/"+where); err != nil {
		return err
	}
	if err := d.buy(key, args...); err != nil {
		return err
	}
	_, err := d.provider.await(ctx, waits)
	return err
}

// letBook lets the provider book what it holds.
func (d *demo) letBook(ctx context.Context) error {
	if err := d.tellProvider(ctx, "/go"); err != nil {
		return err
	}
	_, err := d.provider.await(ctx, eventBooked)
	return err
}
