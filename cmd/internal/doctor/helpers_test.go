package doctor_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

const (
	prefix = "index/locks/"
	locks  = "index/lock."
)

// run examines a store. The examination must complete.
func run(t *testing.T, s store.Store, opts doctor.Options) doctor.Report {
	t.Helper()
	opts.Prefix, opts.Locks = prefix, locks
	report, err := doctor.Run(t.Context(), s, opts)
	if err != nil {
		t.Fatal(err)
	}
	return report
}

// check returns a check of the report, which must be there.
func check(t *testing.T, r doctor.Report, name string) doctor.Check {
	t.Helper()
	c, found := r.Check(name)
	if !found {
		t.Fatalf("no check %q in %+v", name, r.Checks)
	}
	return c
}

// expect compares results by name. Those that it doesn't name must be ok or unknown.
func expect(t *testing.T, r doctor.Report, want map[string]doctor.Result) {
	t.Helper()
	for _, c := range r.Checks {
		switch w, named := want[c.Name]; {
		case named && c.Result != w:
			t.Errorf("%s: %s, want %s: %s", c.Name, c.Result, w, c.Detail)
		case !named && c.Result != doctor.OK && c.Result != doctor.Unknown:
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
	for name := range want {
		check(t, r, name)
	}
}

func fitness(t *testing.T, r doctor.Report, want doctor.Fitness) {
	t.Helper()
	if r.Verdict.Fitness != want {
		t.Errorf("%+v, want %s", r.Verdict, want)
	}
	if (r.Plan != nil) != (want == doctor.Fit) {
		t.Errorf("plan: %+v", r.Plan)
	}
}

// empty checks that no object is left.
func empty(t *testing.T, s *mem.Store) {
	t.Helper()
	if got := all(t, s); len(got) > 0 {
		t.Errorf("left: %v", got)
	}
}

// all returns every key.
func all(t *testing.T, s *mem.Store) []string {
	t.Helper()
	keys, err := store.Keys(t.Context(), s, "")
	if err != nil {
		t.Fatal(err)
	}
	return keys
}

// tapped returns a good store behind hooks, and the store.
func tapped() (*hookstore.Store, *mem.Store) {
	m := mem.New(mem.Options{})
	return &hookstore.Store{Store: m}, m
}

// refuse makes requests of some kinds fail, below the scratch prefix.
func refuse(s *hookstore.Store, ops ...string) {
	s.Before(func(_ context.Context, r hookstore.Request) error {
		for _, op := range ops {
			if r.Op == op && strings.HasPrefix(r.Key, prefix) {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
			}
		}
		return nil
	})
}

// bubble is the clock of a synctest bubble. Its wall clock can be wrong.
type bubble struct {
	start time.Time
	skew  time.Duration
}

func (b bubble) Now() time.Time                         { return time.Now().Add(b.skew) }
func (b bubble) Elapsed() time.Duration                 { return time.Since(b.start) }
func (b bubble) After(d time.Duration) <-chan time.Time { return time.After(d) }

// keys collects the keys of all puts.
type keys struct {
	mu  sync.Mutex
	all []string
}

func (k *keys) note(_ context.Context, r hookstore.Request) error {
	if r.Op == "put" {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.all = append(k.all, r.Key)
	}
	return nil
}
