package judge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is an operation on the lock: a section takes it, acts under it, or releases it.
type step struct {
	op   string // opAcquire, opRelease, or that of an act
	id   string
	mode Mode
	key  string
}

const (
	opAcquire = "acquire"
	opRelease = "release"
)

func (s step) String() string {
	switch s.op {
	case opAcquire:
		return s.id + " takes " + string(s.mode)
	case opRelease:
		return s.id + " leaves"
	default:
		return s.id + " " + s.op + " " + s.key
	}
}

// holders is the state of the lock: the sections that hold it. It is comparable.
type holders struct {
	mode Mode
	ids  string // in order, each followed by a space
}

// with returns the state after a step, or false if the lock doesn't allow it.
func (h holders) with(s step) (holders, bool) {
	ids := strings.Fields(h.ids)
	at, found := slices.BinarySearch(ids, s.id)
	switch {
	case s.op == opAcquire:
		if found || len(ids) > 0 && s.mode.conflicts(h.mode) {
			return h, false
		}
		return newHolders(s.mode, slices.Insert(ids, at, s.id)), true
	case !found:
		return h, false
	case s.op == opRelease:
		return newHolders(h.mode, slices.Delete(ids, at, at+1)), true
	default:
		return h, true
	}
}

func newHolders(mode Mode, ids []string) holders {
	if len(ids) == 0 {
		return holders{}
	}
	return holders{mode, strings.Join(ids, " ")}
}

func (h holders) String() string {
	if h.ids == "" {
		return "free"
	}
	return string(h.mode) + ": " + h.ids
}

// model is a readers-writer lock with the set of its holders.
var model = porcupine.Model{
	Init: func() any { return holders{} },
	Step: func(state, input, _ any) (bool, any) {
		next, ok := state.(holders).with(input.(step))
		return ok, next
	},
	DescribeOperation: func(input, _ any) string { return input.(step).String() },
	DescribeState:     func(state any) string { return state.(holders).String() },
	Partition:         apart,
}

// leeway bounds how long taking or releasing the lock can have taken.
const leeway = 200 * time.Millisecond

// operations returns the operations of the sections that got in. A section takes the lock
// between its start and its first log entry, and releases it between its last log entry and
// its end. An unanswered act is the last entry: it must only begin while the lock is held.
func operations(sections []Section) (ops []porcupine.Operation) {
	for _, s := range sections {
		if !s.Entered {
			continue
		}
		add := func(st step, from, to int64) {
			st.id, st.mode = s.ID, s.Mode
			ops = append(ops, porcupine.Operation{ClientId: s.Client, Input: st, Call: from, Return: to})
		}
		add(step{op: opAcquire}, int64(max(s.Started, s.In-leeway)), int64(s.In))
		for _, a := range s.Acts {
			if a.Answered {
				add(step{op: a.Op, key: a.Key}, int64(a.Call), int64(a.Return))
			}
		}
		add(step{op: opRelease}, int64(s.Last), int64(min(s.Ended, s.Last+leeway)))
	}
	return ops
}

// apart splits a history at each time when no section is in and no operation is under way:
// each part begins with a free lock.
func apart(ops []porcupine.Operation) (parts [][]porcupine.Operation) {
	ops = slices.Clone(ops)
	slices.SortStableFunc(ops, func(a, b porcupine.Operation) int { return cmp.Compare(a.Call, b.Call) })
	inside, until, from := 0, int64(0), 0
	for i, op := range ops {
		if i > from && inside == 0 && op.Call > until {
			parts = append(parts, ops[from:i])
			from = i
		}
		switch op.Input.(step).op {
		case opAcquire:
			inside++
		case opRelease:
			inside--
		}
		until = max(until, op.Return)
	}
	if from < len(ops) {
		parts = append(parts, ops[from:])
	}
	return parts
}
