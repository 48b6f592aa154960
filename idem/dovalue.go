package idem

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
)

// DoValue is Do for a value instead of bytes: T and the request travel as JSON. The
// bool says that the value was stored by an earlier call.
//
// The request tells a retry from a reused key by its JSON with sorted members, so
// that a struct whose fields were moved, or a map, are the same request; numbers
// are compared as they are written. Bytes of a string that aren't UTF-8 are one and
// the same to JSON.
//
// Each caller gets the value as JSON gives it back, the first one too. Final and
// FinalKeep store a Reply whose Body is the JSON of a T.
//
// Errors are those of Do. ErrInvalidReply: the value, or Final's body, is not JSON
// that T can be read from, and nothing was kept; or what is stored isn't, because T
// changed or Do stored it, and then fn doesn't run again.
func DoValue[T any](ctx context.Context, s *Store, key Key, request any, fn func(context.Context, pgx.Tx) (T, error)) (T, bool, error) {
	var value T
	fp, err := fingerprintJSON(request)
	if err != nil {
		return value, false, fmt.Errorf("%s: %w: the request: %w", key, ErrInvalidKey, err)
	}
	c, err := s.newCall(key, fp, nil, func(ctx context.Context, tx pgx.Tx) (Reply, error) {
		v, err := fn(ctx, tx)
		if final, ok := errors.AsType[*finalError](err); ok {
			return Reply{}, cmp.Or(readable[T](final.reply.Body), err)
		}
		if err != nil {
			return Reply{}, err
		}
		body, err := json.Marshal(v)
		if err != nil {
			return Reply{}, fmt.Errorf("%w: %w", ErrInvalidReply, err)
		}
		return Reply{Body: body}, readable[T](body)
	})
	if err != nil {
		return value, false, err
	}
	c.codec = codecJSON
	result, err := c.do(ctx)
	if err == nil {
		err = decode(result.Body, &value)
	}
	return value, result.Replayed, err
}

func readable[T any](body []byte) error { return decode(body, new(T)) }

func decode[T any](body []byte, into *T) error {
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%w: as %T: %w", ErrInvalidReply, *into, err)
	}
	return nil
}

func fingerprintJSON(request any) (Fingerprint, error) {
	text, err := json.Marshal(request)
	if err != nil {
		return Fingerprint{}, err
	}
	text, err = canonicalJSON(text)
	return FingerprintOf([]byte(codecJSON), text), err
}

// canonicalJSON writes JSON without space and with the members of objects sorted;
// of equal names the last one counts. Numbers stay as they are written.
func canonicalJSON(text []byte) ([]byte, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var v any
	if err := d.Decode(&v); err != nil {
		return nil, err
	}
	return json.Marshal(v)
}
