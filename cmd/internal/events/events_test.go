package events

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// TestKinds: each declared kind of event is in the table of kinds, so that no record can lack a new kind. Each counter
// of the table is in the metrics file.
func TestKinds(t *testing.T) {
	var all []replock.EventKind
	for _, file := range []string{"event.go", filepath.Join("..", "..", "..", "replock", "event.go")} {
		text, err := os.ReadFile(file)
		assert.OK(t, err)
		for _, m := range regexp.MustCompile(`(?m)^\t\w+ +(?:replock\.)?EventKind = "(\w+)"$`).FindAllSubmatch(text, -1) {
			all = append(all, replock.EventKind(m[1]))
		}
	}
	assert.Need(t, slices.Contains(all, replock.EventAcquired) && slices.Contains(all, LockBroken), "the declared kinds are %q", all)
	for _, k := range all {
		_, ok := kinds[k]
		assert.That(t, ok, "%s isn't in the table", k)
	}
	assert.That(t, len(kinds) == len(all), "the table has %d kinds, and %d are declared", len(kinds), len(all))
	for name, k := range kinds {
		known := slices.ContainsFunc(families, func(f family) bool { return f.name == k.counter && f.kind == "counter" })
		assert.That(t, known || k.counter == "", "%s counts as %q, which the file doesn't have", name, k.counter)
	}
}

// TestRecords: each kind has the records of the table: the audit log gets a line with its
// name, and the metrics count it.
func TestRecords(t *testing.T) {
	gauges := []replock.EventKind{replock.EventAcquired, replock.EventReleased, WorkEnded, NotAcquired}
	for name, k := range kinds {
		a, m := &Auditor{locks: map[string]lease{}}, &Metrics{values: map[string]float64{}, held: map[string]bool{"": true}}
		e := of(name, "", "", "id")
		e.Holders = make([]replock.Info, 1)
		records := a.records(e)
		assert.That(t, (k.audit != "") == (len(records) == 1 && records[0].Event == k.audit), "%s is recorded as %+v", name, records)
		changed := m.count(e)
		assert.That(t, changed == (k.counter != "" || slices.Contains(gauges, name)) && (k.counter == "" || m.values[k.counter] == 1),
			"%s changes the metrics: %t, %v", name, changed, m.values)
	}
}

// auditor returns an auditor of the lock n of /srv/repo, and its log.
func auditor(t *testing.T) (a *Auditor, path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "audit")
	a, err := NewAuditor(path, "/srv/repo", "n", "", t.Errorf)
	assert.OK(t, err)
	return a, path
}

func of(kind replock.EventKind, place, name, id string) Event {
	ended := kind == replock.EventLost || kind == replock.EventReleased || kind == replock.EventReleaseFailed
	return Event{Place: place, Event: replock.Event{Kind: kind, Time: time.Unix(1e9, 0), Mode: replock.Exclusive, Name: name, ID: id, Key: "index/lock", Ended: ended}}
}

// TestLogOfSeveral: each record has the name, the place, the id and the duration of its own lock.
func TestLogOfSeveral(t *testing.T) {
	const place = "beads:/b/.beads"
	a, _ := auditor(t)
	a.records(of(replock.EventAcquired, "", "n", "aa"))
	time.Sleep(20 * time.Millisecond)
	a.records(of(replock.EventAcquired, place, ".beads", "bb"))
	first, second := a.locks[""], a.locks[place]
	assert.Need(t, first.id == "aa" && second.id == "bb" && second.acquired-first.acquired >= 10*time.Millisecond, "%+v", a.locks)
	r := a.records(of(replock.EventReleased, "", "n", "aa"))[0]
	assert.That(t, r.Result == "failure", "released before the work has ended: %+v", r)
	a.records(Event{Event: replock.Event{Kind: WorkEnded}, Success: true})
	held := map[string]float64{}
	for _, e := range []Event{of(replock.EventReleased, place, ".beads", "bb"), of(replock.EventReleased, "", "n", "aa")} {
		r := a.records(e)[0]
		held[r.LockName] = *r.HeldDurationSeconds
		want := map[string]string{"": "/srv/repo/index/lock", place: place}[e.Place]
		assert.That(t, r.LockPath == want && r.RequestID == e.ID && r.Result == "success", "%+v", r)
	}
	assert.That(t, held["n"]-held[".beads"] >= 0.01, "held for %v", held)
	// A resume is of its own lock, too.
	r = a.records(of(replock.EventResumed, place, ".beads", "cc"))[0]
	assert.That(t, r.ResumedFrom == "bb" && r.RequestID == "cc" && a.locks[""].id == "aa", "%+v, %+v", r, a.locks)
	r = a.records(of(replock.EventResumed, place, ".beads", "dd"))[0]
	assert.That(t, r.ResumedFrom == "cc", "%+v", r)
}

// TestRemovals: each removed lock has a record of its own, with the hash of its body. A lock that
// couldn't be removed is marked for a cleanup by hand.
func TestRemovals(t *testing.T) {
	a, _ := auditor(t)
	a.repo = "s3://bucket/p?region=r"
	e := of(replock.EventReaped, "", "n", "")
	e.Holders = []replock.Info{{ID: "aa", Body: []byte(`{"a":1}`)}, {ID: "bb", Body: []byte("\xff")}}
	stolen := a.records(e)
	assert.That(t, len(stolen) == 2 && stolen[0].PreviousLockHash == "sha256:015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862" &&
		string(stolen[0].PreviousLock) == `{"a":1}` && string(stolen[1].PreviousLock) == `"/w=="` && stolen[1].HeldBy[0].RequestID == "bb", "%+v", stolen)
	for _, failure := range []error{nil, errors.New("no")} {
		e.Kind, e.Err = LockBroken, failure
		r := a.records(e)[0]
		assert.That(t, (r.Action == "manual_cleanup_required") == (failure != nil) && r.LockPath == "s3://bucket/p/index/lock", "%+v", r)
	}
}

// TestReasons: a record has what was done with the command, and the mode of its lock.
func TestReasons(t *testing.T) {
	a, _ := auditor(t)
	for _, c := range []struct {
		event          Event
		action, reason string
	}{
		{Event{Event: replock.Event{Kind: GuardLost}, Stopped: true}, "command_stopped", ""},
		{Event{Event: replock.Event{Kind: GuardLost}}, "", ""},
		{Event{Event: replock.Event{Kind: ContinuedByOther}, Killed: true}, "command_killed", ""},
		{Event{Event: replock.Event{Kind: ContinuedByOther}}, "command_stopped", ""},
		{Event{Event: replock.Event{Kind: CommandRunsOn}, Killed: true}, "", "not_killed"},
		{Event{Event: replock.Event{Kind: CommandRunsOn}}, "", "not_stopped"},
	} {
		r := a.records(c.event)[0]
		assert.That(t, r.Action == c.action && r.Reason == c.reason && r.Mode == "", "%+v: %+v", c.event, r)
	}
	assert.Equal(t, a.records(of(replock.EventAcquired, "", "n", "aa"))[0].Mode, "exclusive")
}

// TestStaleRefusal: a refusal because of one stale lock, and no other, is recorded as lock_stale.
func TestStaleRefusal(t *testing.T) {
	const place = "tower-fleet:/locks/a"
	a, _ := auditor(t)
	h := replock.Info{Verdict: replock.Stale, TTL: time.Minute, Age: time.Hour, ModTime: time.Unix(1e9, 0), Keys: []string{place}}
	live := h
	live.Verdict = replock.Live
	for _, c := range []struct {
		holders []replock.Info
		event   string
		ttl     float64
	}{{[]replock.Info{h}, "lock_stale", 60}, {[]replock.Info{live}, "lock_blocked", 0}, {[]replock.Info{h, h}, "lock_blocked", 0}} {
		e := of(replock.EventBlocked, place, "a", "")
		e.Holders = c.holders
		r := a.records(e)[0]
		assert.That(t, r.Event == c.event && r.TTLSeconds == c.ttl && (r.StaleSince != nil) == (c.ttl > 0) && len(r.HeldBy) == len(c.holders), "%+v", r)
	}
}

// TestForeignRecords: the log has a record in another system's form unchanged, and leaves out only the events
// that it replaces.
func TestForeignRecords(t *testing.T) {
	const place = "tower-fleet:/locks/a"
	foreign := struct {
		Event string `json:"event"`
		Own   string `json:"own_field"`
	}{"lock_acquired", "x"}
	recorded := of(replock.EventAcquired, place, "a", "aa")
	recorded.Recorded = true
	a, path := auditor(t)
	for _, e := range []Event{
		{Place: place, Record: foreign}, recorded, of(replock.EventLost, place, "a", "aa"), of(replock.EventAcquired, "", "n", "bb"), {Place: place, Record: foreign},
	} {
		a.Handle(e)
	}
	raw := lines(t, path, "")
	assert.That(t, len(raw) == 4 && raw[0] == `{"event":"lock_acquired","own_field":"x"}` && raw[3] == raw[0] &&
		strings.HasPrefix(raw[1], `{"event":"lock_lost"`) && strings.Contains(raw[2], `"lock_name":"n"`), "%q", raw)
	var lost struct {
		Held *float64 `json:"held_duration_seconds"`
	}
	err := json.Unmarshal([]byte(raw[1]), &lost)
	assert.That(t, err == nil && lost.Held != nil && *lost.Held <= 3600, "held for %v, %v", lost.Held, err)
}

// TestInstant: JSON has a form only for years of four digits in UTC, whatever year a time's own offset shows.
func TestInstant(t *testing.T) {
	for written, want := range map[string]string{
		"2026-03-07T11:00:00+02:00": "2026-03-07T09:00:00Z",
		"9999-12-31T23:59:59Z":      "9999-12-31T23:59:59Z",
		"0000-01-01T00:00:00Z":      "0000-01-01T00:00:00Z",
		"9999-12-31T23:59:59-01:00": "",
		"0000-01-01T00:00:00+01:00": "",
		"0001-01-01T00:00:00Z":      "",
	} {
		at, err := time.Parse(time.RFC3339, written)
		assert.OK(t, err)
		got := ""
		if i := Instant(at); i != nil {
			raw, err := i.MarshalText()
			assert.OK(t, err)
			got = string(raw)
		}
		assert.Equal(t, got, want, "%s", written)
	}
	assert.That(t, Instant(time.Date(10000, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))) != nil, "the last hour of year 9999")
}
