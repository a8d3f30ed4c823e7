package doctor_test

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestStores: doctor reports what a poor store lacks, and repolock works without it.
func TestStores(t *testing.T) {
	type results = map[string]doctor.Result
	const (
		warn    = doctor.Warn
		unknown = doctor.Unknown
	)
	for name, test := range map[string]struct {
		opts mem.Options
		want results
		plan doctor.Plan
	}{
		"good": {mem.Options{}, results{doctor.IfMatchRace: doctor.OK, doctor.IfNoneMatchRace: doctor.OK},
			doctor.Plan{Shared: 2, Exclusive: 2, Renewal: "if_match", Release: "delete", Fence: true, Conditions: doctor.Relied}},
		"claimed": {mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed, Precision: time.Second}, results{},
			doctor.Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: doctor.Proven}},
		"ignored": {mem.Options{IfAbsent: mem.Ignored, IfMatch: mem.Ignored},
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: warn, doctor.IfMatch: warn, doctor.IfMatchRace: unknown, doctor.ConditionalDelete: warn},
			doctor.Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: doctor.Unreliable}},
		"lacked": {mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked},
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: unknown, doctor.IfMatch: warn, doctor.IfMatchRace: unknown, doctor.ConditionalDelete: warn},
			doctor.Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: doctor.Unreliable}},
		"markers": {mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed, Markers: true}, results{doctor.IfNoneMatchGone: warn},
			doctor.Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: doctor.Unreliable}},
		"no time": {mem.Options{NoTime: true, Precision: time.Second}, results{doctor.OneClock: unknown, doctor.ClockOffset: doctor.OK},
			doctor.Plan{Shared: 2, Exclusive: 2, Renewal: "if_match", Release: "delete", Fence: true, Conditions: doctor.Relied}},
		"no store clock": {mem.Options{NoStoreClock: true}, results{doctor.OneClock: warn},
			doctor.Plan{Shared: 2, Exclusive: 2, Renewal: "if_match", Release: "delete", Fence: true, Conditions: doctor.Relied}},
		"small pages": {mem.Options{PageSize: 7}, results{},
			doctor.Plan{Shared: 2, Exclusive: 2, Renewal: "if_match", Release: "delete", Fence: true, Conditions: doctor.Relied}},
	} {
		t.Run(name, func(t *testing.T) {
			s := mem.New(test.opts)
			r := run(t, s, doctor.Options{Others: []store.Store{s}})
			expect(t, r, test.want)
			fitness(t, r, doctor.Fit)
			if r.Plan != nil {
				if len(r.Plan.Says) == 0 {
					t.Error("lacks the plan")
				}
				r.Plan.Says = nil
				if diff := cmp.Diff(test.plan, *r.Plan); diff != "" {
					t.Error(diff)
				}
			}
			if len(r.Left) > 0 {
				t.Errorf("reports as left: %v", r.Left)
			}
			empty(t, s)
		})
	}
}

// TestIgnoredSaysHowOften: the report has the number of ignored conditions, because users
// don't believe that a server ignores one now and then.
func TestIgnoredSaysHowOften(t *testing.T) {
	r := run(t, mem.New(mem.Options{IfAbsent: mem.Ignored}), doctor.Options{})
	c := check(t, r, doctor.IfNoneMatchRace)
	if !strings.Contains(c.Detail, "ignored: 160 of 160 won") || c.Counts["won"] != 160 || c.Counts["rounds_with_several_winners"] != 20 {
		t.Errorf("%+v", c)
	}
}

// TestRenewal: doctor's text about a refresh agrees with repolock's behaviour. If a condition
// is only claimed, repolock looks before the put.
func TestRenewal(t *testing.T) {
	for _, test := range []struct {
		store store.Store
		says  string
	}{
		{mem.New(mem.Options{}), "a lock is renewed by a put with If-Match, in 1 round trip"},
		{mem.New(mem.Options{IfMatch: mem.Claimed}), "a lock is renewed by a look and a put, in 2 round trips; " +
			"the put has If-Match, once the store has proven to the process that it heeds it"},
		{&creates{mem.New(mem.Options{IfMatch: mem.Claimed})}, "a lock is renewed by a look and a put, in 2 round trips"},
		{mem.New(mem.Options{IfMatch: mem.Ignored}), "a lock is renewed by a look and a put, in 2 round trips"},
	} {
		if r := run(t, test.store, doctor.Options{}); r.Plan == nil || !slices.Contains(r.Plan.Says, test.says) {
			t.Errorf("%+v doesn't say: %s", r.Plan, test.says)
		}
	}
}

// TestReport: every check is reported, in order, and JSON has the names that
// scripts rely on.
func TestReport(t *testing.T) {
	raw, err := json.Marshal(run(t, mem.New(mem.Options{}), doctor.Options{}))
	if err != nil {
		t.Fatal(err)
	}
	var got struct {
		Store, Prefix string
		Checks        []struct{ Name, Result, Detail string }
		Clock         map[string]any
		Latency       []struct {
			Request   string
			N         int
			Median_ms *float64
			P99_ms    *float64
		}
		Plan    map[string]any
		Verdict struct{ Fitness, Summary string }
	}
	dec := json.NewDecoder(strings.NewReader(string(raw)))
	dec.DisallowUnknownFields()
	if err := json.Unmarshal(raw, &got); err != nil {
		t.Fatal(err)
	}
	var names, requests []string
	for _, c := range got.Checks {
		names = append(names, c.Name)
		if c.Detail == "" || c.Result == "" {
			t.Errorf("%+v", c)
		}
	}
	want := "reachable list write read overwrite delete list_after_write if_none_match if_none_match_race if_none_match_deleted if_match if_match_race if_match_absent " +
		"conditional_delete versioning object_lock one_clock clock_offset"
	if s := strings.Join(names, " "); s != want {
		t.Errorf("checks: %s", s)
	}
	for _, l := range got.Latency {
		requests = append(requests, l.Request)
		if l.N == 0 || l.Median_ms == nil || l.P99_ms == nil || *l.P99_ms < *l.Median_ms {
			t.Errorf("%+v", l)
		}
	}
	if s := strings.Join(requests, ", "); s != "list, get, put, put if-none-match, put if-match, delete, delete if-match" {
		t.Errorf("latencies of %s", s)
	}
	for _, key := range []string{"shared_round_trips", "exclusive_round_trips", "renewal", "release", "fence", "conditions", "says"} {
		if _, found := got.Plan[key]; !found {
			t.Errorf("no %s in the plan", key)
		}
	}
	for _, key := range []string{"offset_seconds", "uncertainty_seconds", "source"} {
		if _, found := got.Clock[key]; !found {
			t.Errorf("no %s of the clock", key)
		}
	}
	if got.Store != "mem" || got.Verdict.Fitness != "fit" || got.Verdict.Summary == "" {
		t.Errorf("%s", raw)
	}
}

// TestNoLock: none of doctor's objects can be taken for a lock.
func TestNoLock(t *testing.T) {
	s, _ := tapped()
	var put keys
	s.Before(put.note)
	r := run(t, s, doctor.Options{})
	if len(put.all) < 200 {
		t.Fatalf("only %d puts", len(put.all))
	}
	for _, key := range put.all {
		if !strings.HasPrefix(key, r.Prefix) || strings.Contains(key, "/lock.") {
			t.Errorf("wrote %q", key)
		}
	}
	if !strings.HasPrefix(r.Prefix, prefix+"doctor-") {
		t.Errorf("wrote below %q", r.Prefix)
	}
}

// TestPrefix: an invalid prefix is refused.
func TestPrefix(t *testing.T) {
	for _, p := range []string{"index", "/", "a//", "../"} {
		s, _ := tapped()
		if _, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: p, Locks: locks}); err == nil {
			t.Errorf("%q was taken", p)
		}
		if n, _ := s.Count(); n > 0 {
			t.Errorf("%q: %d requests", p, n)
		}
	}
}

// TestProgress: progress names the running step.
func TestProgress(t *testing.T) {
	var steps []string
	run(t, mem.New(mem.Options{}), doctor.Options{Progress: func(what string) { steps = append(steps, what) }})
	if !slices.Contains(steps, "list after write") || steps[len(steps)-1] != "cleaning up" {
		t.Errorf("%q", steps)
	}
}
