package also

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
)

// shelf is a backend with one lock, which a test describes.
type shelf struct {
	locking.Backend
	info     *locking.Info
	err      error
	broken   []bool // the restriction to stale locks, with each Break
	refuse   bool
	findings []locking.Finding
}

func (s *shelf) Inspect(context.Context, string) (*locking.Info, error) { return s.info, s.err }

func (s *shelf) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	s.broken = append(s.broken, stale)
	return !s.refuse && seen == s.info, nil
}

func (s *shelf) Examine(context.Context) ([]locking.Finding, error) { return s.findings, s.err }

// TestVerdicts: a holder is shown as one of a repository's lock is.
func TestVerdicts(t *testing.T) {
	now := time.Now()
	for _, c := range []struct {
		name    string
		info    locking.Info
		verdict replock.Verdict
		gone    bool
		holder  string
	}{
		{"live", locking.Info{Holder: "h", Host: "vm", PID: 7, Renewed: now, TTL: time.Minute}, replock.Live, false, "h on vm (pid 7)"},
		{"stale by its ttl", locking.Info{Holder: "h", Renewed: now.Add(-time.Hour), TTL: time.Minute, Stale: true}, replock.Stale, false, "h"},
		{"stale by its process", locking.Info{Host: "vm", Stale: true}, replock.Stale, true, "on vm"},
		{"unreadable", locking.Info{Trouble: "it is cut off", Stale: true}, replock.Unreadable, false, ""},
	} {
		got, err := Lock{Backend: &shelf{info: &c.info}, URL: "fake:k"}.Inspect(t.Context())
		if err != nil || got.Verdict != c.verdict || got.ProcessGone != c.gone || got.Holder != c.holder || got.Why != c.info.Trouble || got.Key() != "fake:k" {
			t.Errorf("%s: %+v, %v", c.name, got, err)
		}
	}
	late, _ := Lock{Backend: &shelf{info: &locking.Info{Renewed: now.Add(-time.Hour), TTL: time.Minute}}}.Inspect(t.Context())
	if late.Left > -58*time.Minute || late.Age < time.Hour {
		t.Errorf("age %v, left %v", late.Age, late.Left)
	}
}

// TestBreakChooses: break-lock removes what its flags choose, and tells the backend if only a
// stale lock is meant.
func TestBreakChooses(t *testing.T) {
	live := &locking.Info{Revision: "1", TTL: time.Minute, Renewed: time.Now()}
	stale := &locking.Info{Revision: "1", TTL: time.Minute, Stale: true}
	dead := &locking.Info{Revision: "1", Stale: true}
	unreadable := &locking.Info{Revision: "1", Trouble: "it is cut off"}
	shown := func(id, key string) []replock.Broken {
		return []replock.Broken{{Info: replock.Info{ID: id, Keys: []string{key}}}}
	}
	for _, c := range []struct {
		name string
		info *locking.Info
		opts replock.BreakOptions
		want []bool
	}{
		{"free", nil, replock.BreakOptions{}, nil},
		{"any", live, replock.BreakOptions{}, []bool{false}},
		{"any, unreadable", unreadable, replock.BreakOptions{}, []bool{false}},
		{"dry", live, replock.BreakOptions{DryRun: true}, nil},
		{"stale, live", live, replock.BreakOptions{Stale: true}, nil},
		{"stale, unreadable", unreadable, replock.BreakOptions{Stale: true}, nil},
		{"stale", stale, replock.BreakOptions{Stale: true}, []bool{true}},
		{"dead, live", live, replock.BreakOptions{Dead: true}, nil},
		{"dead, stale", stale, replock.BreakOptions{Dead: true}, nil},
		{"dead", dead, replock.BreakOptions{Dead: true}, []bool{false}},
		{"id", live, replock.BreakOptions{ID: "1"}, []bool{false}},
		{"another id", live, replock.BreakOptions{ID: "2"}, nil},
		{"shown", live, replock.BreakOptions{Shown: shown("1", "fake:k")}, []bool{false}},
		{"another was shown", live, replock.BreakOptions{Shown: shown("2", "fake:k")}, nil},
		{"another key's was shown", live, replock.BreakOptions{Shown: shown("1", "fake:l")}, nil},
		{"none was shown", live, replock.BreakOptions{Shown: []replock.Broken{}}, nil},
	} {
		s := &shelf{info: c.info}
		got, err := Lock{Backend: s, URL: "fake:k"}.Break(t.Context(), c.opts)
		if err != nil || !slices.Equal(s.broken, c.want) || (len(got) == 1) != (c.want != nil || c.opts.DryRun) {
			t.Errorf("%s: %v, %v, %v", c.name, got, err, s.broken)
		}
	}
	s := &shelf{info: live, refuse: true}
	if got, err := (Lock{Backend: s}).Break(t.Context(), replock.BreakOptions{}); len(got) > 0 || err != nil {
		t.Errorf("another holder has it: %v, %v", got, err)
	}
	inspector := struct {
		locking.Backend
		locking.Inspector
	}{nil, &shelf{info: live}}
	if got, err := (Lock{Backend: inspector}).Break(t.Context(), replock.BreakOptions{}); len(got) > 0 || err == nil {
		t.Errorf("a kind that can't be broken: %v, %v", got, err)
	}
}

// TestExamine: the worst finding decides whether a system is fit.
func TestExamine(t *testing.T) {
	good, doubtful := locking.Finding{What: "eviction policy", Found: "noeviction"}, locking.Finding{What: "replicas", Found: "1", Verdict: locking.Doubtful, Advice: "have none"}
	bad := locking.Finding{What: "pooler", Found: "transaction", Verdict: locking.Bad, Advice: "go around it"}
	for _, c := range []struct {
		findings []locking.Finding
		want     doctor.Fitness
		results  []doctor.Result
	}{
		{nil, doctor.Fit, []doctor.Result{doctor.OK}},
		{[]locking.Finding{good}, doctor.Fit, []doctor.Result{doctor.OK, doctor.OK}},
		{[]locking.Finding{doubtful, good}, doctor.Fit, []doctor.Result{doctor.OK, doctor.Warn, doctor.OK}},
		{[]locking.Finding{bad, doubtful}, doctor.Unfit, []doctor.Result{doctor.OK, doctor.Fail, doctor.Warn}},
	} {
		report, err := Lock{Backend: &shelf{findings: c.findings}, URL: "fake:k"}.Examine(t.Context())
		var results []doctor.Result
		for _, check := range report.Checks {
			results = append(results, check.Result)
		}
		if err != nil || report.Verdict.Fitness != c.want || !slices.Equal(results, c.results) || report.Store != "fake:k" {
			t.Errorf("%+v, %v", report, err)
		}
	}
	if got := check(bad); got.Name != "pooler" || got.Detail != "transaction; go around it" {
		t.Errorf("%+v", got)
	}
	if _, err := (Lock{Backend: &shelf{err: locking.ErrUnreachable}}).Examine(t.Context()); !errors.Is(err, locking.ErrUnreachable) {
		t.Error(err)
	}
}
