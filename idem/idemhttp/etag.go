package idemhttp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/gatepost/gatepost/idem"
)

var (
	// ErrPreconditionRequired says that a change came without If-Match: 428.
	ErrPreconditionRequired = errors.New("idemhttp: If-Match is missing")
	// ErrInvalidPrecondition says that If-Match can't be read: 400.
	ErrInvalidPrecondition = errors.New("idemhttp: If-Match is malformed")
)

// ETag is the strong entity tag of a row's version, for the header ETag: "7" in
// quotes. It goes out with each reply that shows the row, and comes back in If-Match.
func ETag(version int64) string { return strconv.Quote(strconv.FormatInt(version, 10)) }

// IfMatch is the header If-Match of a request: which versions of a row its sender
// allows to be changed (RFC 9110, 13.1.1). The zero value allows none.
type IfMatch struct {
	any      bool // *: whatever version is there
	versions []int64
}

// ParseIfMatch reads If-Match, all of its lines. Tags are compared strongly: a weak
// one (W/"7") matches nothing, nor does one that ETag didn't make.
//
// Errors: ErrPreconditionRequired when there is no such header, which a caller that
// requires none may ignore; ErrInvalidPrecondition.
func ParseIfMatch(h http.Header) (IfMatch, error) {
	lines := h.Values("If-Match")
	if len(lines) == 0 {
		return IfMatch{}, ErrPreconditionRequired
	}
	field := strings.Join(lines, ", ")
	if strings.Trim(field, optionalSpace) == "*" {
		return IfMatch{any: true}, nil
	}
	tags, err := entityTags(field)
	if err != nil {
		return IfMatch{}, err
	}
	var m IfMatch
	for _, tag := range tags {
		version, err := strconv.ParseInt(strings.Trim(tag, `"`), 10, 64)
		if err == nil && tag == ETag(version) {
			m.versions = append(m.versions, version)
		}
	}
	return m, nil
}

const optionalSpace = " \t"

// entityTags splits a list of entity tags. It can't split at commas: a tag may hold
// one. Empty members are allowed (RFC 9110, 5.6.1).
func entityTags(field string) (tags []string, err error) {
	for rest := field; ; {
		rest = strings.TrimLeft(rest, optionalSpace+",")
		if rest == "" {
			break
		}
		opaque := strings.TrimPrefix(rest, "W/")
		end := closingQuote(opaque)
		if end < 0 {
			return nil, fmt.Errorf("%w: it must be * or a list of entity tags", ErrInvalidPrecondition)
		}
		end += len(rest) - len(opaque)
		tags = append(tags, rest[:end])
		rest = strings.TrimLeft(rest[end:], optionalSpace)
		if rest != "" && rest[0] != ',' {
			return nil, fmt.Errorf("%w: a comma is missing", ErrInvalidPrecondition)
		}
	}
	if len(tags) == 0 {
		return nil, fmt.Errorf("%w: it is empty", ErrInvalidPrecondition)
	}
	return tags, nil
}

// closingQuote is where an opaque tag at the start of s ends, or -1. A tag knows no
// escapes.
func closingQuote(s string) int {
	if s == "" || s[0] != '"' {
		return -1
	}
	for i := 1; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"':
			return i + 1
		case c <= ' ' || c == 0x7f:
			return -1
		}
	}
	return -1
}

// Matches says whether a row of that version may be changed.
func (m IfMatch) Matches(version int64) bool { return m.any || slices.Contains(m.versions, version) }

// maxMatches bounds the search for a version that keeps rising.
const maxMatches = 5

// CompareAndSet is idem.CompareAndSet for a version that the sender allows, and
// returns the new one, for ETag. With a list it takes the version that is there; with
// * whatever that is.
//
// Errors are those of idem.CompareAndSet. ErrStale without a *StaleError says that no
// tag could match any version; then the row was not looked at.
func (m IfMatch) CompareAndSet(ctx context.Context, db idem.DBTX, u idem.Update) (int64, error) {
	var version int64 // for *, a guess that is put right by the first answer
	switch {
	case len(m.versions) > 0:
		version = m.versions[0]
	case !m.any:
		return 0, idem.ErrStale
	}
	for range maxMatches {
		next, err := idem.CompareAndSet(ctx, db, u, version)
		stale, ok := errors.AsType[*idem.StaleError](err)
		if !ok || !m.Matches(stale.Current) {
			return next, err
		}
		version = stale.Current
	}
	return 0, fmt.Errorf("%w: the row was changed %d times meanwhile", idem.ErrRetryTx, maxMatches)
}
