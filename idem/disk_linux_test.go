package idem_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/gatepost/gatepost/idem"
	"github.com/gatepost/gatepost/internal/pgtest"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// On a full disk a call is ErrUnavailable: neither its effect nor its reply is there, and
// nothing of it is final. What is stored is replayed, and a claim is kept alive.
func TestDiskFull_IsUnavailableAndLeavesNothing(t *testing.T) {
	t.Parallel()
	disk := pgtest.NewDisk(t)
	s, effects := holder(t, disk.Pool, idem.Config{Lease: 10 * time.Second}), newLedger(t, disk.Pool)
	before, late, final := newKey(t), newKey(t), newKey(t)
	_, err := s.Do(t.Context(), before, fp, nil, effects.write(before.Key, created, nil))
	if err != nil {
		t.Fatal(err)
	}
	a := claim(t, s, newKey(t))
	large := idem.Reply{Status: http.StatusOK, Body: make([]byte, 500_000)}
	_, _ = rand.Read(large.Body) // nothing can be packed
	disk.Fill(t)

	wantReplay(t, s, before, created)
	_, err = s.Do(t.Context(), late, fp, nil, effects.write(late.Key, large, nil))
	wantDiskFull(t, err)
	_, err = s.Do(t.Context(), final, fp, nil, func(ctx context.Context, tx pgx.Tx) (idem.Reply, error) {
		_, err := tx.Exec(ctx, "INSERT INTO "+effects.name+" SELECT repeat('x', 1000) FROM generate_series(1, 1000)")
		wantCode53100(t, err)
		return idem.Reply{}, idem.Final(created) // as one who takes it for a refusal
	})
	wantCode53100(t, err)
	wantDiskFull(t, a.Finish(t.Context(), large, nil))
	unclaimed := firstUnclaimed(t, s)
	if a.Err() != nil {
		t.Errorf("the attempt is lost on a full disk: %v", a.Err())
	}

	disk.Free(t)
	effects.want(t, late.Key, 0)
	for _, key := range []idem.Key{late, final} {
		wantFree(t, s, key)
	}
	if err := claim(t, s, unclaimed).Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := a.Finish(t.Context(), large, nil); err != nil {
		t.Error(err)
	}
}

// firstUnclaimed claims keys until one finds no room, and returns that one.
func firstUnclaimed(t *testing.T, s *idem.Store) idem.Key {
	t.Helper()
	for i := range 1000 {
		key := idem.Key{Operation: "disk", Scope: idem.Global, Key: fmt.Sprintf("%d/%s", i, strings.Repeat("x", 200))}
		a, err := s.Begin(t.Context(), key, fp)
		if err != nil {
			wantDiskFull(t, err)
			return key
		}
		if err := a.Release(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	t.Fatal("the disk is not full: this test proves nothing")
	return idem.Key{}
}

// wantDiskFull says that it is ErrUnavailable, with the server's error, and nothing else.
func wantDiskFull(t *testing.T, err error) {
	t.Helper()
	wantErr(t, err, idem.ErrUnavailable)
	wantCode53100(t, err)
	for _, wrong := range []error{
		idem.ErrInProgress, idem.ErrMismatch, idem.ErrFenced, idem.ErrLapsed, idem.ErrEnded, idem.ErrInvalidKey, idem.ErrInvalidReply,
		idem.ErrNotMigrated, idem.ErrRetryTx,
	} {
		if errors.Is(err, wrong) {
			t.Errorf("%v matches %v", err, wrong)
		}
	}
}

func wantCode53100(t *testing.T, err error) {
	t.Helper()
	if e, ok := errors.AsType[*pgconn.PgError](err); !ok || e.Code != "53100" {
		t.Fatalf("error is %v, want the server's 53100, disk_full", err)
	}
}
