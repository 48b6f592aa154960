package operator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/gatepost/gatepost/gen/idemdb"
	"github.com/gatepost/gatepost/idem"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Record is all that is stored of a key, without its body.
type Record struct {
	Key
	AttemptID          string // of the last claim
	Fingerprint        []byte
	FingerprintVersion int
	// Header is the stored reply's, as it is in the table: what isn't printable ASCII
	// stands there as "base64:..." .
	Header http.Header
	Codec  string // of the body, empty for plain bytes
	Steps  []Step
}

// Step is a finished step of an operation in lease mode.
type Step struct {
	Name   string
	Size   int64 // of its output, in bytes
	DoneAt time.Time
}

// RecordOf reads all about a key. Two statements, no lock. A call of transaction mode
// can't be seen before it commits.
//
// Errors: idem.ErrNotFound.
func RecordOf(ctx context.Context, pool *pgxpool.Pool, key idem.Key) (Record, error) {
	q := idemdb.New(pool)
	row, err := q.KeyShow(ctx, idemdb.KeyShowParams{Operation: key.Operation, Scope: string(key.Scope), Key: key.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return Record{}, fmt.Errorf("%s: %w", key, idem.ErrNotFound)
	}
	if err != nil {
		return Record{}, fmt.Errorf("read the key of %s: %w", key, err)
	}
	r := recordOf(key, row)
	if row.Headers != "" {
		if err := json.Unmarshal([]byte(row.Headers), &r.Header); err != nil {
			return Record{}, fmt.Errorf("read the headers of %s: %w", key, err)
		}
	}
	steps, err := q.KeySteps(ctx, idemdb.KeyStepsParams{Operation: key.Operation, Scope: string(key.Scope), Key: key.Key})
	if err != nil {
		return Record{}, fmt.Errorf("list the steps of %s: %w", key, err)
	}
	for _, s := range steps {
		r.Steps = append(r.Steps, Step{s.Step, s.Size, s.DoneAt.Time})
	}
	return r, nil
}

func recordOf(key idem.Key, row idemdb.KeyShowRow) Record {
	return Record{
		Key: Key{
			Key: key, State: KeyState(row.State), Attempt: row.AttemptNo, Status: status(row.Status), BodySize: row.BodyLen,
			CreatedAt: row.CreatedAt.Time, DoneAt: row.DoneAt.Time, ExpiresAt: row.ExpiresAt.Time, LeaseTo: row.LeaseUntil.Time,
			Age:       time.Duration(row.AgeUs) * time.Microsecond,
			Left:      time.Duration(row.LeftUs) * time.Microsecond,
			LeaseLeft: time.Duration(row.LeaseLeftUs) * time.Microsecond,
		},
		AttemptID: row.Attempt, Fingerprint: row.Fingerprint, FingerprintVersion: int(row.FingerprintVersion), Codec: row.Codec,
	}
}

// Body reads the stored body of a key, byte for byte; nil when none is stored. One
// statement, no lock.
//
// Errors: idem.ErrNotFound.
func Body(ctx context.Context, pool *pgxpool.Pool, key idem.Key) ([]byte, error) {
	body, err := idemdb.New(pool).KeyBody(ctx, idemdb.KeyBodyParams{Operation: key.Operation, Scope: string(key.Scope), Key: key.Key})
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, fmt.Errorf("%s: %w", key, idem.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("read the body of %s: %w", key, err)
	}
	return body, nil
}
