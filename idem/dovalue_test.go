package idem_test

import (
	"context"
	"testing"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
)

type charge struct {
	ID     string
	Amount int64
}

func TestDoValue_ReplaysTheValue(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	for i, request := range []any{
		struct{ B, A int }{1, 2},
		struct{ A, B int }{2, 1},
		map[string]any{"B": 1, "A": 2},
	} {
		got, replayed, err := idem.DoValue(t.Context(), s, key, request, func(context.Context, pgx.Tx) (charge, error) {
			return charge{"ch_1", 300}, nil
		})
		if err != nil || replayed != (i > 0) || got != (charge{"ch_1", 300}) {
			t.Errorf("request %d: got %v, %t, %v", i, got, replayed, err)
		}
	}
	_, _, err := idem.DoValue(t.Context(), s, key, struct{ A, B int }{1, 2}, func(context.Context, pgx.Tx) (charge, error) { panic("ran") })
	wantErr(t, err, idem.ErrMismatch)
}

func TestDoValue_RefusesAValueThatChangedItsType(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	if _, _, err := idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (charge, error) { return charge{}, nil }); err != nil {
		t.Fatal(err)
	}
	_, _, err := idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (int, error) { panic("ran") })
	wantErr(t, err, idem.ErrInvalidReply)
}
