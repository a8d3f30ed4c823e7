package doctor_test

import (
	"context"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestPermissions: doctor finds each lacking permission by its name, and reports the request
// that was refused.
func TestPermissions(t *testing.T) {
	type results = map[string]doctor.Result
	const (
		ok      = doctor.OK
		fail    = doctor.Fail
		unknown = doctor.Unknown
	)
	for name, test := range map[string]struct {
		refused []string
		want    results
		fit     doctor.Fitness
		says    string // of the first that isn't granted
	}{
		"list":                 {[]string{"list"}, results{doctor.List: fail, doctor.ListAfterWrite: unknown, doctor.IfMatchRace: ok}, doctor.LacksPermission, `list "index/locks/doctor-`},
		"put":                  {[]string{"put"}, results{doctor.Write: fail, doctor.Read: ok, doctor.Overwrite: unknown, doctor.Delete: unknown}, doctor.LacksPermission, `put "index/locks/doctor-`},
		"get":                  {[]string{"get"}, results{doctor.Read: fail, doctor.Overwrite: ok, doctor.Delete: ok, doctor.ListAfterWrite: ok}, doctor.LacksPermission, `get "index/locks/doctor-`},
		"delete":               {[]string{"delete"}, results{doctor.Delete: doctor.Warn}, doctor.Fit, `delete "index/locks/doctor-`},
		"put and delete":       {[]string{"put", "delete"}, results{doctor.Write: fail, doctor.Delete: fail, doctor.Read: ok}, doctor.LacksPermission, `put "index/locks/doctor-`},
		"list and put and get": {[]string{"list", "put", "get"}, results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown}, doctor.LacksPermission, `list "index/locks/doctor-`},
		"all":                  {[]string{"list", "put", "get", "delete"}, results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown, doctor.Delete: fail}, doctor.LacksPermission, `list "index/locks/doctor-`},
	} {
		t.Run(name, func(t *testing.T) {
			s, m := tapped()
			refuse(s, test.refused...)
			r := run(t, s, doctor.Options{})
			expect(t, r, test.want)
			fitness(t, r, test.fit)
			for _, c := range r.Checks {
				if c.Refused {
					if !strings.HasPrefix(c.Detail, test.says) || !strings.Contains(c.Detail, "permission denied") {
						t.Errorf("%s says %q", c.Name, c.Detail)
					}
					break
				}
			}
			if name != "delete" {
				empty(t, m)
				if len(r.Left) > 0 {
					t.Errorf("reports as left: %v", r.Left)
				}
			}
		})
	}
}

// TestUndeletable: objects that can't be deleted are emptied, and named.
func TestUndeletable(t *testing.T) {
	s, m := tapped()
	refuse(s, "delete")
	r := run(t, s, doctor.Options{})
	left := all(t, m)
	if len(left) == 0 || len(left) != len(r.Left) {
		t.Errorf("%d are left, %d are named", len(left), len(r.Left))
	}
	for _, key := range r.Left {
		if body, _, err := m.Get(t.Context(), key, 1); err != nil || len(body) != 0 {
			t.Errorf("%q: %q, %v", key, body, err)
		}
	}
	if r.Plan == nil || r.Plan.Release != "empty_put" {
		t.Errorf("plan: %+v", r.Plan)
	}
}

// TestOverwriteRefused: renewing a lock needs it.
func TestOverwriteRefused(t *testing.T) {
	for _, alsoDelete := range []bool{false, true} {
		s, m := tapped()
		s.Before(func(ctx context.Context, r hookstore.Request) error {
			_, _, err := m.Get(ctx, r.Key, 1<<20)
			if r.Op == "put" && err == nil && r.Opts == (store.PutOptions{}) || r.Op == "delete" && alsoDelete {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
			}
			return nil
		})
		r := run(t, s, doctor.Options{})
		want := map[string]doctor.Result{doctor.Overwrite: doctor.Fail}
		if alsoDelete {
			want[doctor.Delete] = doctor.Fail
		} else {
			empty(t, m)
		}
		expect(t, r, want)
		fitness(t, r, doctor.LacksPermission)
		if n := len(all(t, m)); n != len(r.Left) {
			t.Errorf("%d are left, %d are named", n, len(r.Left))
		}
	}
}

// TestConditionForbidden: a server that forbids conditional requests would refuse a lock the
// same way.
func TestConditionForbidden(t *testing.T) {
	for _, c := range []mem.Condition{mem.Kept, mem.Claimed} {
		m := mem.New(mem.Options{IfMatch: c})
		s := &hookstore.Store{Store: m}
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Opts.IfMatch != "" {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
			}
			return nil
		})
		r := run(t, s, doctor.Options{})
		expect(t, r, map[string]doctor.Result{doctor.IfMatch: doctor.Fail, doctor.ConditionalDelete: doctor.Warn})
		fitness(t, r, doctor.LacksPermission)
		empty(t, m)
	}
}

// TestLocksNotListed: every acquirer lists the locks, so doctor needs to.
func TestLocksNotListed(t *testing.T) {
	s, m := tapped()
	s.Before(func(_ context.Context, r hookstore.Request) error {
		if r.Key == locks {
			return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
		}
		return nil
	})
	r := run(t, s, doctor.Options{})
	expect(t, r, map[string]doctor.Result{doctor.Reachable: doctor.Fail, doctor.ListAfterWrite: doctor.OK})
	fitness(t, r, doctor.LacksPermission)
	empty(t, m)
}
