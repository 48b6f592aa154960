package idem_test

import (
	"context"
	"encoding/json"
	"reflect"
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

// Two amounts that are one number as float64 are two requests.
func TestDoValue_ComparesNumbersAsTheyAreWritten(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	give := func(context.Context, pgx.Tx) (charge, error) { return charge{}, nil }
	if _, _, err := idem.DoValue(t.Context(), s, key, charge{Amount: 1<<53 + 1}, give); err != nil {
		t.Fatal(err)
	}
	_, _, err := idem.DoValue(t.Context(), s, key, charge{Amount: 1 << 53}, give)
	wantErr(t, err, idem.ErrMismatch)
}

func TestDoValue_RefusesWhatTheTypeCantReadAndDoesNotRunAgain(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	give := func(context.Context, pgx.Tx) (charge, error) { return charge{}, nil }
	if _, _, err := idem.DoValue(t.Context(), s, key, 1, give); err != nil {
		t.Fatal(err)
	}
	_, _, err := idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (int, error) { panic("ran") })
	wantErr(t, err, idem.ErrInvalidReply)

	request, err := json.Marshal(1)
	if err != nil {
		t.Fatal(err)
	}
	f := idem.FingerprintOf([]byte("json"), request) // as DoValue has it
	_, err = s.Do(t.Context(), key, f, nil, unreached(t))
	wantErr(t, err, idem.ErrInvalidReply)
	key = newKey(t)
	if _, err := s.Do(t.Context(), key, f, nil, func(context.Context, pgx.Tx) (idem.Reply, error) {
		return idem.Reply{Body: []byte(`{"ID": "1"}`)}, nil
	}); err != nil {
		t.Fatal(err)
	}
	_, _, err = idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (charge, error) { panic("ran") })
	wantErr(t, err, idem.ErrInvalidReply)
}

func TestDoValue_StoresNothingThatItCouldNotReadAgain(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	_, _, err := idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (func(), error) { return nil, nil })
	wantErr(t, err, idem.ErrInvalidReply)
	_, _, err = idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (error, error) { return errBusiness, nil })
	wantErr(t, err, idem.ErrInvalidReply)
	_, _, err = idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (charge, error) {
		return charge{}, idem.Final(idem.Reply{Body: []byte("no JSON")})
	})
	wantErr(t, err, idem.ErrInvalidReply)
	_, _, err = idem.DoValue(t.Context(), s, key, 1, func(context.Context, pgx.Tx) (charge, error) { return charge{}, errBusiness })
	wantErr(t, err, errBusiness)
	_, _, err = idem.DoValue(t.Context(), s, key, func() {}, func(context.Context, pgx.Tx) (charge, error) { panic("ran") })
	wantErr(t, err, idem.ErrInvalidKey)
	wantFree(t, s, key)
}

func TestDoValue_FinalIsAValue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	s, effects, key := store(t, pool, idem.Config{}), newLedger(t, pool), newKey(t)
	for _, want := range []bool{false, true} {
		got, replayed, err := idem.DoValue(t.Context(), s, key, 1, func(ctx context.Context, tx pgx.Tx) (charge, error) {
			_, err := effects.write(key.Key, idem.Reply{}, idem.Final(idem.Reply{Body: []byte(`{"ID": "refused"}`)}))(ctx, tx)
			return charge{ID: "not this"}, err
		})
		if err != nil || got != (charge{ID: "refused"}) || replayed != want {
			t.Errorf("got %v, %t, %v", got, replayed, err)
		}
	}
	effects.want(t, key.Key, 0)
}

// The first caller gets what later ones get: numbers that JSON has, and no more.
func TestDoValue_FirstCallerGetsWhatIsStored(t *testing.T) {
	t.Parallel()
	s, key := store(t, pgtest.Pool(t), idem.Config{}), newKey(t)
	var all []any
	for range 2 {
		got, _, err := idem.DoValue(t.Context(), s, key, nil, func(context.Context, pgx.Tx) (any, error) {
			return map[string]any{"n": 1, "b": []byte{0, 255}, "s": "\x00\u2028"}, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, got)
	}
	if !reflect.DeepEqual(all[0], all[1]) {
		t.Errorf("first %v, then %v", all[0], all[1])
	}
}
