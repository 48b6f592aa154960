package main

import (
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"hash"
	"slices"
	"strings"

	"github.com/gatepost/gatepost/examples/fileimport/csvfile"
)

// A keyKind says what makes a record the same record when it comes again.
type keyKind int

const (
	// fileLine: the file's content and the line. A renamed equal file is the same
	// import; two equal records of one file are two.
	fileLine keyKind = iota
	// content: the record's fields and which occurrence of them it is in its file,
	// so that N equal records stay N. For exports that overlap.
	content
	// natural: columns that are a key already.
	natural
)

func (k keyKind) String() string { return [...]string{"file-line", "content", "natural"}[k] }

// keySpec is what --key says.
type keySpec struct {
	kind    keyKind
	columns []string // of a natural key, as in the header
}

// String is what --key would say.
func (k keySpec) String() string {
	if k.kind == natural {
		return k.kind.String() + ":" + strings.Join(k.columns, ",")
	}
	return k.kind.String()
}

func parseKey(text string) (keySpec, error) {
	switch {
	case text == "file-line":
		return keySpec{kind: fileLine}, nil
	case text == "content":
		return keySpec{kind: content}, nil
	case strings.HasPrefix(text, "natural:"):
		columns := strings.Split(strings.TrimPrefix(text, "natural:"), ",")
		for i, c := range columns {
			if c == "" || slices.Contains(columns[:i], c) {
				return keySpec{}, fmt.Errorf("--key %s: column %q is empty or named twice", text, c)
			}
		}
		return keySpec{kind: natural, columns: columns}, nil
	default:
		return keySpec{}, fmt.Errorf("--key %q is not known; use file-line, content or natural:COLUMN,COLUMN", text)
	}
}

// column is one of a table's.
type column struct{ name, definition string }

// extra are the columns that the table has for the key besides the file's own.
func (k keySpec) extra() []column {
	switch k.kind {
	case fileLine:
		return []column{{"gatepost_file", "integer NOT NULL"}, {"gatepost_line", "bigint NOT NULL"}}
	case content:
		return []column{{"gatepost_sha256", "bytea NOT NULL"}, {"gatepost_occurrence", "bigint NOT NULL"}}
	default:
		return nil
	}
}

// names are the columns of the unique key.
func (k keySpec) names() []string {
	if k.kind == natural {
		return k.columns
	}
	var names []string
	for _, c := range k.extra() {
		names = append(names, c.name)
	}
	return names
}

// verdict is what a record is within its file.
type verdict int

const (
	fresh     verdict = iota
	duplicate         // its natural key came before, with the same content
	changed           // its natural key came before, with other content
)

// keyer finds the keys of a file's records. It sees them in order and gives the
// same answers in each pass. For content and natural keys it remembers a hash
// of each record.
type keyer struct {
	spec     keySpec
	position []int // of a natural key's columns
	hash     hash.Hash
	frame    [9]byte
	counts   map[[32]byte]int64    // content: occurrences so far
	contents map[[32]byte][32]byte // natural: content of the first record with the key
}

// newKeyer refuses a natural key whose columns the file hasn't got.
func newKeyer(spec keySpec, columns []string) (*keyer, error) {
	k := &keyer{spec: spec, hash: sha256.New(), counts: map[[32]byte]int64{}, contents: map[[32]byte][32]byte{}}
	for _, c := range spec.columns {
		i := slices.Index(columns, c)
		if i < 0 {
			return nil, fmt.Errorf("--key natural: the file has no column %q; it has %s", c, strings.Join(columns, ", "))
		}
		k.position = append(k.position, i)
	}
	return k, nil
}

// next judges one record and gives the values of the extra columns but the
// file's id. A reason says that the record has no key.
func (k *keyer) next(record csvfile.Record) (v verdict, values []any, reason string) {
	switch k.spec.kind {
	case fileLine:
		return fresh, []any{record.Line}, ""
	case content:
		sum := k.sum(record.Fields, nil)
		k.counts[sum]++
		return fresh, []any{sum[:], k.counts[sum]}, ""
	case natural: // below
	}
	for i, p := range k.position {
		if isNull(record.Fields[p]) {
			return fresh, nil, fmt.Sprintf("key column %q is empty", k.spec.columns[i])
		}
	}
	key, all := k.sum(record.Fields, k.position), k.sum(record.Fields, nil)
	first, seen := k.contents[key]
	switch {
	case !seen:
		k.contents[key] = all
		return fresh, nil, ""
	case first == all:
		return duplicate, nil, ""
	default:
		return changed, nil, ""
	}
}

// sum hashes fields, each framed by its length and whether it is NULL, so that
// no two lists of fields are the same bytes. Positions nil means all.
func (k *keyer) sum(fields []csvfile.Field, positions []int) (sum [32]byte) {
	k.hash.Reset()
	add := func(f csvfile.Field) {
		k.frame[0] = 1
		if isNull(f) {
			k.frame[0] = 0
		}
		binary.BigEndian.PutUint64(k.frame[1:], uint64(len(f.Value)))
		k.hash.Write(k.frame[:])
		k.hash.Write([]byte(f.Value))
	}
	if positions == nil {
		for _, f := range fields {
			add(f)
		}
	}
	for _, p := range positions {
		add(fields[p])
	}
	k.hash.Sum(sum[:0])
	return sum
}

// isNull follows COPY's CSV: nothing between two commas is NULL, "" is an empty
// text.
func isNull(f csvfile.Field) bool { return f.Value == "" && !f.Quoted }
