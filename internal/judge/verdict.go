package judge

import (
	"fmt"
	"io"
	"time"

	"github.com/anishathalye/porcupine"
)

// Result is the outcome of a judgement.
type Result string

const (
	// NotFound: no violation was found. That proves nothing about cases not tried.
	NotFound Result = "no_violation_found"
	// Violated: the lock failed, or the store did something that no lock withstands.
	Violated Result = "violation"
	// Unknown: there is no verdict.
	Unknown Result = "unknown"
)

// Names of violations.
const (
	TwoIn         = "overlap"        // two sections that exclude each other were in together
	ForeignWrite  = "foreign_write"  // an exclusive holder saw an object appear
	ForeignDelete = "foreign_delete" // a holder saw an object vanish
	StaleListing  = "stale_listing"  // a listing missed what was written before it began
	LostObject    = "lost_object"    // the store lost one
)

// Violation is one violation, with the IDs of its sections.
type Violation struct {
	Name     string   `json:"name"`
	Sections []string `json:"stays"`
	Text     string   `json:"text"`
}

// Verdict is the judgement of a history.
type Verdict struct {
	Result     Result
	Why        string // reason of an unknown result
	Violations []Violation
	Late       int // number of changes by requests that were never answered

	info porcupine.LinearizationInfo
}

// Judge decides whether the sections can have happened under a lock. It gives up the search
// for an order after the timeout.
func Judge(sections []Section, timeout time.Duration) Verdict {
	var v Verdict
	v.Violations = Seen(sections)
	_, v.Late = changes(sections)
	var order porcupine.CheckResult
	order, v.info = porcupine.CheckOperationsVerbose(model, operations(sections), timeout)
	for _, s := range sections {
		for _, f := range s.Faults { // drawn below the clients
			v.info.AddAnnotations([]porcupine.Annotation{{Tag: "faults", Start: int64(f.At), Description: f.Text + " " + s.ID}})
		}
	}
	switch {
	case order == porcupine.Illegal && len(v.Violations) == 0:
		// overlaps is wrong then: believe porcupine.
		v.Violations = []Violation{{Name: TwoIn, Text: "porcupine finds no order in which this can have happened under a lock"}}
		fallthrough
	case len(v.Violations) > 0:
		v.Result = Violated
	case order == porcupine.Ok:
		v.Result = NotFound
	default:
		v.Result, v.Why = Unknown, fmt.Sprintf("porcupine didn't come to an end in %v", timeout)
	}
	return v
}

// Picture writes porcupine's drawing of the history, with the faults, as HTML.
func (v Verdict) Picture(w io.Writer) error {
	return porcupine.Visualize(model, v.info, w)
}
