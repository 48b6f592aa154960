package idem

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"unicode/utf8"
)

// Limits of the schema, in bytes.
const (
	maxKeyBytes       = 255
	maxOperationBytes = 200
	maxScopeBytes     = 200
	maxNameBytes      = 63 // of a table or a column: PostgreSQL's
)

// Key names one thing that is to happen once.
type Key struct {
	// Operation is what happens: "payments.charge". 1 to 200 bytes of UTF-8.
	Operation string
	// Scope is whose key it is. Never empty: one tenant's key must not find
	// another's reply.
	Scope Scope
	// Key is the caller's: 1 to 255 bytes of visible ASCII, case-sensitive. Never
	// logged.
	Key string
}

// Scope is whose idempotency key it is: a tenant, an account, a user. 1 to 200
// bytes of UTF-8.
type Scope string

// Global is the scope of keys that belong to nobody in particular. It is written
// out, so that sharing keys is a decision.
const Global Scope = "global"

// String leaves the caller's key out.
func (k Key) String() string { return fmt.Sprintf("%s in scope %q", k.Operation, string(k.Scope)) }

// ExternalKey is an idempotency key to send along with a call to a peer, and to ask
// the peer for what became of it (BeginRecover): 64 characters of visible ASCII, made
// of the operation, the scope and the key, so that it is the same for all attempts. An
// operation that makes several calls names them.
func (k Key) ExternalKey(call ...string) string {
	parts := [][]byte{[]byte("gatepost external key"), []byte(k.Operation), []byte(k.Scope), []byte(k.Key)}
	for _, c := range call {
		parts = append(parts, []byte(c))
	}
	sum := FingerprintOf(parts...)
	return hex.EncodeToString(sum[:])
}

func (k Key) validate() error {
	switch {
	case !storable(k.Operation, maxOperationBytes):
		return fmt.Errorf("%w: Operation must be 1 to %d bytes of UTF-8 without NUL", ErrInvalidKey, maxOperationBytes)
	case !storable(string(k.Scope), maxScopeBytes):
		return fmt.Errorf("%w: Scope must be 1 to %d bytes of UTF-8 without NUL; where keys belong to nobody, say idem.Global", ErrInvalidKey, maxScopeBytes)
	case k.Key == "" || len(k.Key) > maxKeyBytes || strings.ContainsFunc(k.Key, invisible):
		return fmt.Errorf("%w: it must be 1 to %d characters of visible ASCII", ErrInvalidKey, maxKeyBytes)
	}
	return nil
}

// lock is the number of the key's advisory lock: 64 bits of a hash. Where another
// key, or another program, has the same number, the one that comes second is told
// that the key is in progress, or waits; what runs is decided by the key's row.
func (k Key) lock() int64 {
	sum := FingerprintOf([]byte("gatepost idem"), []byte(k.Operation), []byte(k.Scope), []byte(k.Key))
	return int64(binary.BigEndian.Uint64(sum[:8]))
}

func storable(s string, most int) bool {
	return s != "" && len(s) <= most && utf8.ValidString(s) && !strings.ContainsRune(s, 0)
}

func invisible(r rune) bool { return r < 0x21 || r > 0x7e }

// Fingerprint is a SHA-256 over a request. It tells a retry, which gets the first
// one's reply, from a key that was used again for something else, which is
// ErrMismatch.
type Fingerprint [sha256.Size]byte

// fingerprintVersion says how fingerprints are made. One of another version can't
// be compared, and is a mismatch.
const fingerprintVersion = 1

// FingerprintOf hashes the parts of a request, each framed by its length: "a", "bc"
// and "ab", "c" differ.
func FingerprintOf(parts ...[]byte) Fingerprint {
	h := sha256.New()
	var length [8]byte
	for _, p := range parts {
		binary.BigEndian.PutUint64(length[:], uint64(len(p)))
		h.Write(length[:])
		h.Write(p)
	}
	return Fingerprint(h.Sum(nil))
}
