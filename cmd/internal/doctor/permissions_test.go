package doctor_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// TestPermissions: doctor finds each lacking permission by its name, and reports the request
// that was refused. It names what it can't delete.
func TestPermissions(t *testing.T) {
	type request = hookstore.Request
	ops := func(all ...string) func(request, bool) bool {
		return func(r request, _ bool) bool { return slices.Contains(all, r.Op) && strings.HasPrefix(r.Key, prefix) }
	}
	overwrites := func(r request, there bool) bool { return r.Op == "put" && there && r.Opts == (store.PutOptions{}) }
	conditional := func(r request, _ bool) bool { return r.Opts.IfMatch != "" }
	for name, test := range map[string]struct {
		opts    mem.Options
		refused func(r request, there bool) bool // there: the object is
		want    results
		fit     doctor.Fitness
		says    string // of the first that isn't granted
	}{
		"list": {mem.Options{}, ops("list"), results{doctor.List: fail, doctor.ListAfterWrite: unknown, doctor.IfMatchRace: ok},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"put": {mem.Options{}, ops("put"), results{doctor.Write: fail, doctor.Read: ok, doctor.Overwrite: unknown, doctor.Delete: unknown},
			doctor.LacksPermission, `put "index/locks/doctor-`},
		"get": {mem.Options{}, ops("get"), results{doctor.Read: fail, doctor.Overwrite: ok, doctor.Delete: ok, doctor.ListAfterWrite: ok},
			doctor.LacksPermission, `get "index/locks/doctor-`},
		"delete": {mem.Options{}, ops("delete"), results{doctor.Delete: warn}, doctor.Fit, `delete "index/locks/doctor-`},
		"put and delete": {mem.Options{}, ops("put", "delete"), results{doctor.Write: fail, doctor.Delete: fail, doctor.Read: ok},
			doctor.LacksPermission, `put "index/locks/doctor-`},
		"list and put and get": {mem.Options{}, ops("list", "put", "get"), results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"all": {mem.Options{}, ops("list", "put", "get", "delete"),
			results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown, doctor.Delete: fail},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"overwrite": {mem.Options{}, overwrites, results{doctor.Overwrite: fail}, doctor.LacksPermission, `put "index/locks/doctor-`}, // renewing needs it
		"overwrite and delete": {mem.Options{}, func(r request, there bool) bool { return overwrites(r, there) || r.Op == "delete" },
			results{doctor.Overwrite: fail, doctor.Delete: fail}, doctor.LacksPermission, `put "index/locks/doctor-`},
		"the locks": {mem.Options{}, func(r request, _ bool) bool { return r.Key == locks }, // every acquirer lists them
			results{doctor.Reachable: fail, doctor.ListAfterWrite: ok}, doctor.LacksPermission, `list "index/lock.`},
		"conditions": {mem.Options{}, conditional, results{doctor.IfMatch: fail, doctor.ConditionalDelete: warn}, // a lock has them
			doctor.LacksPermission, `put "index/locks/doctor-`},
		"claimed conditions": {mem.Options{IfMatch: mem.Claimed}, conditional, results{doctor.IfMatch: fail, doctor.ConditionalDelete: warn},
			doctor.LacksPermission, `put "index/locks/doctor-`},
	} {
		t.Run(name, func(t *testing.T) {
			m := mem.New(test.opts)
			s := &hookstore.Store{Store: m}
			s.Before(func(ctx context.Context, r request) error {
				if test.refused(r, !missing(ctx, m, r.Key)) {
					return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
				}
				return nil
			})
			r := run(t, s, doctor.Options{})
			expect(t, r, test.want)
			fitness(t, r, test.fit)
			i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Refused })
			if c := r.Checks[i]; !strings.HasPrefix(c.Detail, test.says) || !strings.Contains(c.Detail, "permission denied") {
				t.Errorf("%s says %q", c.Name, c.Detail)
			}
			keys := left(t, m, r)
			if undeletable := name == "delete" || name == "overwrite and delete"; len(keys) != len(r.Left) || (len(keys) > 0) != undeletable {
				t.Errorf("%d are left, %d are named", len(keys), len(r.Left))
			}
			if test.fit != doctor.Fit {
				return
			}
			for _, key := range keys {
				if body, _, err := m.Get(t.Context(), key, 1); err != nil || len(body) != 0 {
					t.Errorf("%s isn't emptied: %q, %v", key, body, err)
				}
			}
			if r.Plan == nil || r.Plan.Release != "empty_put" {
				t.Errorf("plan: %+v", r.Plan)
			}
		})
	}
}

// TestCreatesWithoutDelete: without the right to delete, a key that never existed shows that the
// server takes If-Match on a missing key.
func TestCreatesWithoutDelete(t *testing.T) {
	m := mem.New(mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed})
	s := &hookstore.Store{Store: &flawed{Store: m, amend: creates}}
	s.Before(func(_ context.Context, r hookstore.Request) error {
		if r.Op == "delete" {
			return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
		}
		return nil
	})
	c := check(t, run(t, s, doctor.Options{}), doctor.IfMatchAbsent)
	if c.Result != warn || !strings.Contains(c.Detail, "MinIO before September 2025") {
		t.Errorf("%+v", c)
	}
}
