//go:build linux

package faults_test

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

const linearizable = "P  porcupine"

// register is the state of one name: who may write, and the number that is protected.
type register struct {
	token    int64
	released bool
	counter  int64
}

// model is a lease with a fence. A lease can be taken at any time, since it may have
// lapsed; but who has it not, or not any more, can't write, and whoever writes has seen
// all that was written before.
var model = porcupine.Model{
	Partition: byName,
	Init:      func() any { return register{} },
	Step: func(state, input, _ any) (bool, any) {
		r, o := state.(register), input.(*op)
		switch o.Kind {
		case acquire:
			return o.Token > r.token, register{token: o.Token, counter: r.counter}
		case release:
			return o.Token == r.token && !r.released, register{token: r.token, released: true, counter: r.counter}
		case write:
			may := o.Token == r.token && !r.released && o.Counter == r.counter+1
			return may, register{token: r.token, counter: o.Counter}
		case deliver:
			return o.Token == r.token && !r.released, r
		default:
			panic("no such operation: " + o.Kind)
		}
	},
	DescribeOperation: func(input, _ any) string {
		return tell(input)
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%+v", state) },
}

func byName(all []porcupine.Operation) [][]porcupine.Operation {
	names := map[string][]porcupine.Operation{}
	for _, o := range all {
		name := o.Input.(*op).Name
		names[name] = append(names[name], o)
	}
	var parts [][]porcupine.Operation
	for _, part := range sorted(names) {
		parts = append(parts, part)
	}
	return parts
}

// linear: there is an order of the operations that the model allows, and in which each
// of them lies between its call and its return.
func (e *evidence) linear() {
	var ops []porcupine.Operation
	for i, o := range e.happened() {
		ops = append(ops, porcupine.Operation{ClientId: i, Input: o, Call: o.Call, Return: o.end()})
	}
	e.look(linearizable, len(ops))
	result, info := porcupine.CheckOperationsVerbose(model, ops, time.Minute)
	if result == porcupine.Ok {
		return
	}
	e.violated(linearizable, "the history is not linearizable (%s)%s", result, stuck(ops, info))
	if file := *picture; file != "" {
		e.t.Log(porcupine.VisualizePath(model, info, file))
	}
}

// happened are the operations that had their effect, as the database has it: what was
// refused is left out, and so is what a failover lost. The outcome of a write that was
// unknown to its worker is known here, and so is what it wrote.
func (e *evidence) happened() (some history) {
	there := map[string]op{}
	var id string
	var written op
	e.query(`
		SELECT op, token, counter FROM faults.writes
		UNION ALL SELECT nonce::text, token, 0 FROM faults.changes WHERE what = 'grant'
		UNION ALL SELECT 'release ' || old_nonce, token, 0 FROM faults.changes WHERE what = 'release'`, nil,
		[]any{&id, &written.Token, &written.Counter}, func() { there[id] = written })
	for _, o := range e.h.of(acquire, write, deliver, release) {
		proof, did := there[o.proof()]
		switch {
		case !did:
		case o.Result == ok:
			some = append(some, o)
		case o.Kind == write || o.Kind == deliver:
			unknown := *o
			unknown.Return = 0 // it may have happened after its caller gave up
			unknown.Token, unknown.Counter = proof.Token, proof.Counter
			some = append(some, &unknown)
		}
	}
	return some
}

// proof is what the database knows an operation by.
func (o *op) proof() string {
	switch o.Kind {
	case acquire:
		return o.Nonce
	case release:
		return "release " + o.Nonce
	default:
		return o.ID
	}
}

// stuck tells how far the checker came with the name where it came to nothing: the last
// operations that have an order, and those that don't fit behind them.
func stuck(ops []porcupine.Operation, info porcupine.LinearizationInfo) string {
	var text strings.Builder
	for i, part := range byName(ops) {
		longest := []porcupine.Operation{}
		for _, order := range info.PartialLinearizationsOperations()[i] {
			if len(order) > len(longest) {
				longest = order
			}
		}
		if len(longest) == len(part) {
			continue
		}
		fits := map[any]bool{}
		for _, o := range longest {
			fits[o.Input] = true
		}
		for _, o := range longest[max(0, len(longest)-4):] {
			fmt.Fprintf(&text, "\n\t\tbefore: %s", tell(o.Input))
		}
		left := slices.DeleteFunc(slices.Clone(part), func(o porcupine.Operation) bool { return fits[o.Input] })
		for _, o := range left[:min(4, len(left))] {
			fmt.Fprintf(&text, "\n\t\tleft:   %s", tell(o.Input))
		}
	}
	return text.String()
}

// tell is an operation in a line, in milliseconds of the machine's clock.
func tell(input any) string {
	o := input.(*op)
	return fmt.Sprintf("%s %s %s token %d counter %d, %d to %d ms: %s", o.Name, o.ID, o.Kind, o.Token, o.Counter, o.Call/1e6, o.Return/1e6, o.Result)
}
