//go:build linux

package faults_test

const s6 = "S6 answers"

// answersHold: what was answered is what happened. An error that no fault explains is a
// violation: such as that of a statement in a transaction that was left aborted.
func (e *evidence) answersHold() {
	committed := map[string]int{}
	var id string
	e.query(`SELECT op FROM faults.writes UNION ALL SELECT op FROM faults.effects`, nil, []any{&id}, func() { committed[id]++ })
	for _, o := range e.h {
		if o.Result == unexpected {
			e.violated(s6, "%s %s: %s", o.Kind, o.ID, o.Detail)
		}
		switch o.Kind {
		case write, deliver, step, finish, do, doTx, inbox:
			e.look(s6, 1)
			e.answerHolds(o, committed[o.ID])
		default:
		}
	}
}

// answerHolds looks for one operation in what was committed.
func (e *evidence) answerHolds(o *op, times int) {
	fenced := (o.Kind == write || o.Kind == deliver) && !o.Own
	switch {
	case times > 1:
		e.violated(s6, "%s %s was committed %d times", o.Kind, o.ID, times)
	case (o.Kind == write || o.Kind == deliver) && o.Result == ok && times == 0 && !e.lossy && !e.forgotten(o):
		e.violated(s6, "%s %s was acknowledged and is not there", o.Kind, o.ID)
	case o.Kind == finish && o.Result == ok && times == 0 && !e.lossy && !e.forgotten(o):
		e.violated(s6, "%s %s was acknowledged and is not there", o.Kind, o.ID)
	case fenced && times > 0 && o.Result != ok && o.Result != "unknown" && o.Return != 0:
		e.violated(s6, "%s %s is there in spite of its error: %s", o.Kind, o.ID, o.Detail)
	case o.Result == "fenced" && times > 0 && o.Kind != step: // whose answer to COMMIT may have been lost before
		e.violated(s6, "%s %s was refused and is there", o.Kind, o.ID)
	}
}
