package doctor_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// able is a store with the optional abilities of a backend.
type able struct {
	*mem.Store
	is      store.Description
	err     error // of Describe
	deletes string
}

func (s *able) Describe(context.Context) (store.Description, error) { return s.is, s.err }

func (s *able) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, o, err := s.Get(ctx, key, 1<<20)
	if err != nil {
		return err
	}
	switch {
	case s.deletes == "lacks":
		return &store.Error{Op: "delete", Key: key, Err: store.ErrConditionUnsupported}
	case s.deletes == "refuses":
		return &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
	case s.deletes == "keeps" && o.ETag != etag:
		return &store.Error{Op: "delete", Key: key, Err: store.ErrPrecondition}
	default:
		return s.Delete(ctx, key)
	}
}

// TestConditionalDelete: the report names the ability, and the verdict doesn't depend on it.
func TestConditionalDelete(t *testing.T) {
	for deletes, want := range map[string]struct {
		result doctor.Result
		says   string
	}{
		"keeps":   {doctor.OK, "a wrong ETag was refused"},
		"ignores": {doctor.Warn, "ignored"},
		"lacks":   {doctor.Warn, "no such condition"},
		"refuses": {doctor.Warn, "permission denied"},
	} {
		s := &able{Store: mem.New(mem.Options{}), deletes: deletes}
		r := run(t, s, doctor.Options{})
		expect(t, r, map[string]doctor.Result{doctor.ConditionalDelete: want.result})
		if c := check(t, r, doctor.ConditionalDelete); !strings.Contains(c.Detail, want.says) {
			t.Errorf("%s: %s", deletes, c.Detail)
		}
		fitness(t, r, doctor.Fit)
		empty(t, s.Store)
	}
}

// TestDescription: the report has the server's description, and the verdict doesn't depend on
// it.
func TestDescription(t *testing.T) {
	for _, test := range []struct {
		is         store.Description
		err        error
		versioning doctor.Result
		lock       doctor.Result
		says       string
	}{
		{store.Description{Server: "x/1", Versioning: store.Yes, ObjectLock: store.No}, nil, doctor.OK, doctor.OK, "on"},
		{store.Description{Versioning: store.No}, nil, doctor.OK, doctor.Unknown, "off"},
		{store.Description{}, &store.Error{Op: "describe", Err: store.ErrPermission}, doctor.Unknown, doctor.Unknown, "doesn't tell"},
	} {
		s := &able{Store: mem.New(mem.Options{}), deletes: "keeps", is: test.is, err: test.err}
		r := run(t, s, doctor.Options{})
		expect(t, r, map[string]doctor.Result{doctor.Versioning: test.versioning, doctor.ObjectLock: test.lock})
		if c := check(t, r, doctor.Versioning); !strings.Contains(c.Detail, test.says) {
			t.Errorf("%+v: %s", test.is, c.Detail)
		}
		if r.Server != test.is.Server {
			t.Errorf("server %q", r.Server)
		}
		fitness(t, r, doctor.Fit)
	}
	s := &able{Store: mem.New(mem.Options{}), deletes: "keeps", err: &store.Error{Op: "describe", Err: store.ErrConfig}}
	if _, err := doctor.Run(t.Context(), s, doctor.Options{Prefix: prefix, Locks: locks}); !errors.Is(err, store.ErrConfig) {
		t.Errorf("error: %v", err)
	}
	empty(t, s.Store)
}
