package events

import (
	"bufio"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/replock"
)

// logged returns the lines that an auditor writes for events.
func logged(t *testing.T, all ...Event) (lines []map[string]any, raw []string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "audit")
	a, err := NewAuditor(path, "/srv/repo", "n", "", t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range all {
		a.Handle(e)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for s := bufio.NewScanner(f); s.Scan(); {
		line := map[string]any{}
		if err := json.Unmarshal(s.Bytes(), &line); err != nil {
			t.Fatal(err)
		}
		lines, raw = append(lines, line), append(raw, s.Text())
	}
	return lines, raw
}

func of(kind replock.EventKind, place, name, id string) Event {
	return Event{Place: place, Event: replock.Event{Kind: kind, Time: time.Unix(1e9, 0), Mode: replock.Exclusive, Name: name, ID: id, Key: "index/lock"}}
}

// TestLogOfSeveral: each record is of its own lock: its name, its place, its id, and how long
// that one was held.
func TestLogOfSeveral(t *testing.T) {
	const place = "beads:/b/.beads"
	a, err := NewAuditor(filepath.Join(t.TempDir(), "audit"), "/srv/repo", "n", "", t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	a.records(of(replock.EventAcquired, "", "n", "aa"))
	time.Sleep(20 * time.Millisecond)
	a.records(of(replock.EventAcquired, place, ".beads", "bb"))
	first, second := a.locks[""], a.locks[place]
	if first.id != "aa" || second.id != "bb" || second.acquired-first.acquired < 10*time.Millisecond {
		t.Fatalf("%+v", a.locks)
	}
	a.records(Event{Event: replock.Event{Kind: WorkEnded}, Success: true})
	held := map[string]float64{}
	for _, e := range []Event{of(replock.EventReleased, place, ".beads", "bb"), of(replock.EventReleased, "", "n", "aa")} {
		r := a.records(e)[0]
		held[r.LockName] = *r.HeldDurationSeconds
		if want := map[string]string{"": "/srv/repo/index/lock", place: place}[e.Place]; r.LockPath != want || r.RequestID != e.ID || r.Result != "success" {
			t.Errorf("%+v", r)
		}
	}
	if held["n"]-held[".beads"] < 0.01 {
		t.Errorf("held for %v", held)
	}
	// A resume is of its own lock, too.
	if r := a.records(of(replock.EventResumed, place, ".beads", "cc"))[0]; r.ResumedFrom != "bb" || r.RequestID != "cc" || a.locks[""].id != "aa" {
		t.Errorf("%+v, %+v", r, a.locks)
	}
	if r := a.records(of(replock.EventResumed, place, ".beads", "dd"))[0]; r.ResumedFrom != "cc" {
		t.Errorf("%+v", r)
	}
}

// TestForeignRecords: a record in another system's form is in the log as it is, and only the
// events that it stands for are left out.
func TestForeignRecords(t *testing.T) {
	const place = "tower-fleet:/locks/a"
	foreign := struct {
		Event string `json:"event"`
		Own   string `json:"own_field"`
	}{"lock_acquired", "x"}
	recorded := of(replock.EventAcquired, place, "a", "aa")
	recorded.Recorded = true
	lines, raw := logged(t, Event{Place: place, Record: foreign}, recorded,
		of(replock.EventLost, place, "a", "aa"), of(replock.EventAcquired, "", "n", "bb"), Event{Place: place, Record: foreign})
	if len(raw) != 4 || raw[0] != `{"event":"lock_acquired","own_field":"x"}` || raw[3] != raw[0] ||
		!strings.HasPrefix(raw[1], `{"event":"lock_lost"`) || !strings.Contains(raw[2], `"lock_name":"n"`) {
		t.Errorf("%q", raw)
	}
	if held, ok := lines[1]["held_duration_seconds"].(float64); !ok || held > 3600 {
		t.Errorf("held for %v", lines[1])
	}
}

// TestPlaceOfRefusal: the record of a refusal is of the lock that was refused.
func TestPlaceOfRefusal(t *testing.T) {
	e := of(replock.EventBlocked, "redis://host:6379/0?key=k", "k", "")
	e.Waited, e.Holders = 2*time.Second, []replock.Info{{Holder: "another", Mode: replock.Exclusive}}
	lines, raw := logged(t, e)
	if len(lines) != 1 || lines[0]["lock_name"] != "k" || lines[0]["lock_path"] != e.Place || lines[0]["waited_seconds"] != 2.0 || !strings.Contains(raw[0], `"holder":"another"`) {
		t.Errorf("%q", raw)
	}
}

// TestMetricsOfSeveral: several locks are held when all are, and no longer when one isn't.
// Each loss of one counts.
func TestMetricsOfSeveral(t *testing.T) {
	file := filepath.Join(t.TempDir(), "m.prom")
	m, err := NewMetrics(MetricsOptions{File: file, Locks: 2, Labels: Labels{Repository: "/srv/repo", Lock: "n,k", Mode: replock.Exclusive, Operation: "run"}}, t.Errorf)
	if err != nil {
		t.Fatal(err)
	}
	a, b := "", "redis://host:6379/0?key=k"
	for i, step := range []struct {
		kind  replock.EventKind
		place string
		held  float64
	}{
		{replock.EventAcquired, a, 0},
		{replock.EventReleased, a, 0}, // the other was refused
		{replock.EventAcquired, b, 0},
		{replock.EventAcquired, a, 1},
		{replock.EventRefreshed, b, 1},
		{replock.EventLost, b, 0},
		{replock.EventRefreshed, a, 0},
		{replock.EventResumed, b, 1},
		{replock.EventLost, a, 0},
		{replock.EventLost, b, 0},
		{replock.EventLost, b, 0},    // a resume that fails reports the loss again
		{replock.EventResumed, a, 0}, // the other isn't yet
		{replock.EventResumed, b, 1},
		{replock.EventReleased, b, 0},
		{replock.EventReleased, a, 0},
	} {
		m.Handle(of(step.kind, step.place, "", "id"))
		if m.values["repolock_held"] != step.held {
			t.Errorf("step %d, %s of %q: held %v", i, step.kind, step.place, m.values["repolock_held"])
		}
		if _, ok := m.values["repolock_held_seconds"]; ok != (i >= 3) {
			t.Errorf("step %d: held_seconds %t", i, ok)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil || !strings.Contains(string(text), `repolock_held{lock="n,k",mode="exclusive",operation="run",repository="/srv/repo"} 0`) || !strings.Contains(string(text), `repolock_lost_total{lock="n,k",mode="exclusive",operation="run",repository="/srv/repo"} 3`) {
		t.Errorf("%v\n%s", err, text)
	}
}
