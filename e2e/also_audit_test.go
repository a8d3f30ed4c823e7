//go:build linux && programs && !minio

package e2e

import (
	"encoding/json"
	"slices"
	"strings"
)

// entry is what these tests read of a line of the audit log.
type entry struct {
	Event   string
	ID      string  `json:"request_id"`
	Held    float64 `json:"held_duration_seconds"`
	HeldBy  []any   `json:"held_by"`
	LockAt  string  `json:"lock_path"`
	Process int     `json:"pid"`
}

// audited reads the audit log.
func (s *systems) audited() (all []entry) {
	s.t.Helper()
	for _, line := range s.lines("audit") {
		var e entry
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			s.t.Fatalf("%v: %s", err, line)
		}
		all = append(all, e)
	}
	return all
}

// ids are the ids of the entries of an event, in their order.
func ids(all []entry, event string) (found []string) {
	for _, e := range all {
		if e.Event == event {
			found = append(found, e.ID)
		}
	}
	return found
}

// releasedInReverse checks that n locks were acquired, and released in the reverse order, except
// the one that is lost: -1 if none is.
func (s *systems) releasedInReverse(n, lost int) {
	s.t.Helper()
	all := s.audited()
	want := ids(all, "lock_acquired")
	if len(want) != n {
		s.t.Errorf("%d locks were acquired, want %d", len(want), n)
		return
	}
	if lost >= 0 {
		want = slices.Delete(want, lost, lost+1)
	}
	slices.Reverse(want)
	if got := ids(all, "lock_released"); !slices.Equal(got, want) {
		s.t.Errorf("released %v, want %v", got, want)
	}
}

// auditLog returns the audit log in short.
func (s *systems) auditLog() (log string) {
	for _, e := range s.audited() {
		log += "\n  " + strings.TrimSpace(e.Event+" "+s.short(e.LockAt))
	}
	return log
}

// short names a lock by its kind.
func (s *systems) short(at string) string {
	for kind, url := range s.urls {
		if at == url || kind == kindFleet && at == s.path("fleet/nightly.lock") || kind == kindBeads && at == url+"/.beads" {
			return kind
		}
	}
	return strings.ReplaceAll(at, s.dir+"/", "")
}
