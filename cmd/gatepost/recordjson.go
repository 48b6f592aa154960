package main

import (
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/gatepost/gatepost/internal/cli"
	"github.com/gatepost/gatepost/internal/operator"
)

// recordJSON is a key's object with more in it. The key is the one that was asked for.
type recordJSON struct {
	keyJSON
	AttemptID          string      `json:"attempt_id"`
	Fingerprint        string      `json:"fingerprint"`
	FingerprintVersion int         `json:"fingerprint_version"`
	Header             http.Header `json:"headers"`
	Codec              string      `json:"codec,omitempty"`
	Steps              []stepJSON  `json:"steps"`
	ExternalKey        string      `json:"external_key"`
	Body               []byte      `json:"body,omitempty"` // base64
}

type stepJSON struct {
	Name   string    `json:"name"`
	Size   int64     `json:"size"`
	DoneAt time.Time `json:"done_at"`
}

func recordJSONOf(r operator.Record) recordJSON {
	out := recordJSON{
		keyJSON: keyJSONOf(r.Key, false), AttemptID: r.AttemptID,
		Fingerprint: hex.EncodeToString(r.Fingerprint), FingerprintVersion: r.FingerprintVersion,
		Header: r.Header, Codec: r.Codec, Steps: []stepJSON{},
	}
	if out.Header == nil {
		out.Header = http.Header{}
	}
	for _, s := range r.Steps {
		out.Steps = append(out.Steps, stepJSON{s.Name, s.Size, s.DoneAt.UTC()})
	}
	return out
}

// headersText is a header as it stands in a reply, in the order of its names.
func headersText(h http.Header) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(h)) {
		for _, value := range h[name] {
			lines = append(lines, cli.Printable(name+": "+value))
		}
	}
	return strings.Join(lines, "\n")
}

func stepsText(r operator.Record) string {
	lines := make([]string, len(r.Steps))
	for i, s := range r.Steps {
		lines[i] = fmt.Sprintf("%s, %s bytes, %s", cli.Printable(s.Name), cli.Number(s.Size), momentText(s.DoneAt, r.Now().Sub(s.DoneAt)))
	}
	return strings.Join(lines, "\n")
}
