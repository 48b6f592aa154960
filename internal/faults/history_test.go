//go:build linux

package faults_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
)

// kind is what an operation does.
type kind string

// The kinds of operations.
const (
	acquire  kind = "acquire"
	write    kind = "write"   // by the holder: the register of the name
	deliver  kind = "deliver" // by whoever was handed the sequencer
	renew    kind = "renew"
	release  kind = "release"
	closing  kind = "close"  // of a client, with all its leases
	lost     kind = "lost"   // the holder was told
	hiccup   kind = "hiccup" // the process did not run
	do       kind = "do"
	doTx     kind = "dotx"
	begin    kind = "begin"
	step     kind = "step"
	finish   kind = "finish"
	giveBack kind = "give back" // an attempt
	inbox    kind = "inbox"
)

// ok is the result of an operation that did what it says; see classify for the others.
const ok = "ok"

// op is one operation of a worker. Return is zero, and Result empty, when the process
// was killed before its end.
type op struct {
	ID     string // unique over all workers
	Worker string // and which life of it
	Kind   kind
	Name   string // of the lease, or the key
	Call   int64
	Return int64
	Result string
	Detail string // the text of an error

	Token    int64
	Nonce    string
	Deadline int64  // lost: until when the lease was trusted
	Counter  int64  // write: the register, read and raised by one
	Own      bool   // write: in a transaction that isn't pglock's, so an error says less
	Digest   string // of a reply
	Replayed bool
	Of       string // the operation that began what this one goes on with
}

// end is Return, and for ever when it is unknown.
func (o *op) end() int64 {
	if o.Return == 0 {
		return 1<<63 - 1
	}
	return o.Return
}

// recorder appends operations to a file. A line is one write to the page cache, so what
// was recorded is there when the process is killed.
type recorder struct {
	worker string
	file   *os.File
	last   atomic.Int64
}

func newRecorder(dir, worker string) (*recorder, error) {
	file, err := os.OpenFile(filepath.Join(dir, worker+".jsonl"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	return &recorder{worker: worker, file: file}, err
}

// call records that an operation begins.
func (r *recorder) call(k kind, name string) *op {
	o := &op{ID: r.newID(), Kind: k, Name: name, Call: now()}
	r.note(*o)
	return o
}

func (r *recorder) newID() string {
	return fmt.Sprintf("%s:%d", r.worker, r.last.Add(1))
}

// done records what came of it.
func (r *recorder) done(o *op, err error) {
	o.Return, o.Result = now(), classify(err)
	if err != nil {
		o.Detail = err.Error()
	}
	r.note(*o)
}

// note writes an operation, under a new ID where it has none. Lines of one write to a
// file opened for appending don't mix.
func (r *recorder) note(o op) {
	o.Worker = r.worker
	if o.ID == "" {
		o.ID = r.newID()
	}
	line, err := json.Marshal(o)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		panic(err) // without a history nothing is worth anything
	}
}

// history is what all workers did, in the order of the calls.
type history []*op

// readHistory joins the files of a directory. A line that was cut off by a kill is left
// out.
func readHistory(dir string) (history, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	ops := map[string]*op{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		for line := range bytes.Lines(text) {
			var o op
			if json.Unmarshal(line, &o) == nil {
				ops[o.ID] = &o // the second line of an operation has all of the first
			}
		}
	}
	return slices.SortedFunc(maps.Values(ops), func(a, b *op) int {
		return int(min(1, max(-1, a.Call-b.Call)))
	}), nil
}

// of are the operations of some kinds.
func (h history) of(kinds ...kind) history {
	var some history
	for _, o := range h {
		if slices.Contains(kinds, o.Kind) {
			some = append(some, o)
		}
	}
	return some
}

// good are those that did what they say.
func (h history) good() history {
	return slices.DeleteFunc(slices.Clone(h), func(o *op) bool { return o.Result != ok })
}

// byName are the operations of each name.
func (h history) byName() map[string]history {
	names := map[string]history{}
	for _, o := range h {
		names[o.Name] = append(names[o.Name], o)
	}
	return names
}
