package judge

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
)

// step is an operation of a section: it takes the lock, sends a request under it, or releases it.
type step struct {
	op   string // opAcquire, opRelease, or Act.Op
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

// holders is the state of the lock: the sections that hold it. porcupine compares two states by ==.
type holders struct {
	mode Mode   // "" if ids is empty
	ids  string // sorted, separated by spaces
}

// with returns the state after a step, or false if the lock doesn't allow the step.
func (h holders) with(s step) (holders, bool) {
	ids := strings.Fields(h.ids)
	at, found := slices.BinarySearch(ids, s.id)
	switch {
	case s.op == opAcquire:
		if found || len(ids) > 0 && s.mode.conflicts(h.mode) {
			return h, false
		}
		return holders{s.mode, strings.Join(slices.Insert(ids, at, s.id), " ")}, true
	case !found:
		return h, false
	case s.op == opRelease && len(ids) == 1:
		return holders{}, true
	case s.op == opRelease:
		return holders{h.mode, strings.Join(slices.Delete(ids, at, at+1), " ")}, true
	default:
		return h, true
	}
}

func (h holders) String() string {
	if h.ids == "" {
		return "free"
	}
	return string(h.mode) + ": " + h.ids
}

// model is a readers-writer lock.
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

// leeway bounds how long before its first entry a section took the lock, and how long after its last entry it
// released the lock. A larger bound would make the search slow.
const leeway = 200 * time.Millisecond

// operations returns the operations of the sections that entered. A section takes the lock between its start and
// its first entry, and releases it between its last entry and its end. A request without an answer is no
// operation, but its Call is an entry, so the lock must be held then.
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

// apart splits a history at each time when no section holds the lock and no operation is under way.
// So each part begins with a free lock.
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
