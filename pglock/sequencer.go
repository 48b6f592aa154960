package pglock

import (
	"cmp"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"net/url"
	"strconv"
	"strings"
)

// A Sequencer is all that proves one acquisition of a lease, as a value that can
// be handed to another process: the name, the mode, the fencing token and the
// nonce. Whoever has it can do fenced writes until the lease is over, so it is
// to be passed on like a password with a short life. The term is Chubby's.
//
// Its text form is stable: v1:exclusive:SLOT:TOKEN:NONCE:NAME, the name
// percent-encoded. In JSON it is that string, so no token loses digits in a
// float. The zero value is not a sequencer and is refused everywhere.
type Sequencer struct {
	name  string
	slot  int32
	token int64
	nonce string // a lower-case UUID
}

const (
	sequencerVersion = "v1"
	modeExclusive    = "exclusive"
)

// Name is the lease's name.
func (s Sequencer) Name() string { return s.name }

// Token is the fencing token.
func (s Sequencer) Token() int64 { return s.token }

// String is the text form.
func (s Sequencer) String() string {
	if s.IsZero() {
		return ""
	}
	return strings.Join([]string{
		sequencerVersion, modeExclusive,
		strconv.FormatInt(int64(s.slot), 10), strconv.FormatInt(s.token, 10),
		s.nonce, url.PathEscape(s.name),
	}, ":")
}

// IsZero says whether s is the zero value.
func (s Sequencer) IsZero() bool { return s == Sequencer{} }

// compare orders by name and slot, as the database's key does.
func (s Sequencer) compare(other Sequencer) int {
	return cmp.Or(strings.Compare(s.name, other.name), cmp.Compare(s.slot, other.slot))
}

// ParseSequencer reads the text form. The error matches ErrInvalidSequencer and
// doesn't repeat the text, which may hold a nonce.
func ParseSequencer(text string) (Sequencer, error) {
	parts := strings.SplitN(text, ":", 6)
	if len(parts) != 6 {
		return Sequencer{}, fmt.Errorf("%w: it has %d of 6 parts", ErrInvalidSequencer, len(parts))
	}
	if parts[0] != sequencerVersion || parts[1] != modeExclusive {
		return Sequencer{}, fmt.Errorf("%w: version or mode is not known here", ErrInvalidSequencer)
	}
	slot, err := strconv.ParseInt(parts[2], 10, 32)
	if err != nil || slot < 0 {
		return Sequencer{}, fmt.Errorf("%w: the slot is not a number from 0", ErrInvalidSequencer)
	}
	token, err := strconv.ParseInt(parts[3], 10, 64)
	if err != nil || token <= 0 {
		return Sequencer{}, fmt.Errorf("%w: the token is not a positive 64-bit number", ErrInvalidSequencer)
	}
	if !isNonce(parts[4]) {
		return Sequencer{}, fmt.Errorf("%w: the nonce is not a UUID", ErrInvalidSequencer)
	}
	name, err := url.PathUnescape(parts[5])
	if err != nil || validateName(name) != nil {
		return Sequencer{}, fmt.Errorf("%w: the name is not usable", ErrInvalidSequencer)
	}
	return Sequencer{name: name, slot: int32(slot), token: token, nonce: strings.ToLower(parts[4])}, nil
}

// MarshalText is String, for encoding/json and others.
func (s Sequencer) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText is ParseSequencer. On an error s is unchanged.
func (s *Sequencer) UnmarshalText(text []byte) error {
	parsed, err := ParseSequencer(string(text))
	if err != nil {
		return err
	}
	*s = parsed
	return nil
}

// newNonce is a random (version 4) UUID.
func newNonce() string {
	var b [16]byte
	_, _ = rand.Read(b[:]) // never fails, since Go 1.24
	b[6] = b[6]&0x0f | 0x40
	b[8] = b[8]&0x3f | 0x80
	return fmt.Sprintf("%x-%x-%x-%x-%x", b[0:4], b[4:6], b[6:8], b[8:10], b[10:16])
}

func isNonce(text string) bool {
	if len(text) != 36 || text[8] != '-' || text[13] != '-' || text[18] != '-' || text[23] != '-' {
		return false
	}
	raw, err := hex.DecodeString(strings.ReplaceAll(text, "-", ""))
	return err == nil && len(raw) == 16
}
