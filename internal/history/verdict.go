package history

import (
	"fmt"
	"io"
	"time"

	"github.com/anishathalye/porcupine"
)

// Result is what a history says of the lock.
type Result string

const (
	// NotFound: no violation was. It proves nothing of what wasn't tried.
	NotFound Result = "no_violation_found"
	// Violated: the lock didn't hold, or the store showed what no lock withstands.
	Violated Result = "violation"
	// Unknown: it could not be found out.
	Unknown Result = "unknown"
)

// Names of violations.
const (
	TwoIn         = "overlap"        // two who exclude each other were in together
	ForeignWrite  = "foreign_write"  // an exclusive holder saw an object appear
	ForeignDelete = "foreign_delete" // a holder saw an object vanish
	StaleListing  = "stale_listing"  // a listing missed what was written before it began
	LostObject    = "lost_object"    // the store lost one
)

// Violation is one of them, with the stays that it is about.
type Violation struct {
	Name  string   `json:"name"`
	Stays []string `json:"stays"`
	Text  string   `json:"text"`
}

// Verdict is the judgement on a history.
type Verdict struct {
	Result Result
	// Why a result is unknown.
	Why        string
	Violations []Violation
	// Late is how many changes beside an exclusive holder are those of requests that
	// were never answered.
	Late int

	info   porcupine.LinearizationInfo
	faults []porcupine.Annotation
}

// Judge says whether the stays can have happened under a lock. The search for an
// order is given up after the timeout.
func Judge(stays []Stay, timeout time.Duration) Verdict {
	var v Verdict
	v.Violations = Seen(stays)
	_, v.Late = changes(stays)
	v.faults = annotate(stays)
	var order porcupine.CheckResult
	order, v.info = porcupine.CheckOperationsVerbose(model, operations(stays), timeout)
	switch {
	case order == porcupine.Illegal && len(v.Violations) == 0:
		// Then Overlaps is wrong, which is no reason to believe it.
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

// Seen is all violations that need no search, for who wants to know at once. It
// may be asked for the stays that are over while others go on.
func Seen(stays []Stay) []Violation {
	var found []Violation
	for _, o := range Overlaps(stays) {
		found = append(found, Violation{TwoIn, []string{o.A.ID, o.B.ID}, o.String()})
	}
	changed, _ := changes(stays)
	return append(found, changed...)
}

// Picture writes the history as porcupine draws it, with the faults, as HTML.
func (v Verdict) Picture(w io.Writer) error {
	info := v.info
	info.AddAnnotations(v.faults)
	return porcupine.Visualize(model, info, w)
}

// annotate draws the faults below the clients.
func annotate(stays []Stay) (notes []porcupine.Annotation) {
	for _, s := range stays {
		for _, f := range s.Faults {
			notes = append(notes, porcupine.Annotation{
				Tag: "faults", Start: int64(f.At), Description: f.Text + " " + s.ID,
			})
		}
	}
	return notes
}
