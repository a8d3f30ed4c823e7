package mem_test

import (
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
	"github.com/repolock/repolock/store/storetest"
)

func TestContract(t *testing.T) {
	for name, opts := range map[string]mem.Options{
		"default":  {},
		"poor":     {Precision: time.Second, PageSize: 10, NoTime: true, IfAbsent: mem.Lacked, IfMatch: mem.Lacked, NoBatch: true},
		"versions": {IfAbsent: mem.Lacked, IfMatch: mem.Lacked, Versions: true},
		"ignoring": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored},
		"claiming": {Precision: time.Second, IfAbsent: mem.Claimed, IfMatch: mem.Claimed},
		"creating": {Precision: time.Second, IfAbsent: mem.Claimed, IfMatch: mem.Claimed, IfMatchCreates: true},
	} {
		t.Run(name, func(t *testing.T) {
			storetest.Run(t, storetest.Config{
				New:       func(*testing.T) store.Store { return mem.New(opts) },
				Precision: opts.Precision,
			})
		})
	}
}

// TestIfMatchCreates: such a store writes to a missing key, and compares the ETag of an
// existing one. It doesn't declare the condition as kept.
func TestIfMatchCreates(t *testing.T) {
	s := mem.New(mem.Options{IfMatchCreates: true})
	if got := s.Properties().IfMatch; got != store.Claimed {
		t.Errorf("declared as %v", got)
	}
	put := func(body, etag string) (store.Object, error) {
		return s.Put(t.Context(), "k", []byte(body), store.PutOptions{IfMatch: etag})
	}
	created, err := put("1", "no such etag")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := put("2", "no such etag"); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("of another version: %v", err)
	}
	if _, err := put("3", created.ETag); err != nil {
		t.Errorf("of this version: %v", err)
	}
	if body, _, err := s.Get(t.Context(), "k", 10); string(body) != "3" || err != nil {
		t.Errorf("%q %v is stored", body, err)
	}
}

// TestDeleteIfMatch: a condition that isn't met deletes nothing, unless it is ignored.
func TestDeleteIfMatch(t *testing.T) {
	for c, want := range map[mem.Condition]error{
		mem.Kept: store.ErrPrecondition, mem.Claimed: store.ErrPrecondition, mem.Ignored: nil, mem.Lacked: store.ErrConditionUnsupported,
	} {
		s := mem.New(mem.Options{IfMatch: c})
		o, err := s.Put(t.Context(), "k", []byte("1"), store.PutOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.DeleteIfMatch(t.Context(), "k", "another"); !errors.Is(err, want) {
			t.Errorf("%v: of another version: %v", c, err)
		}
		_, _, err = s.Get(t.Context(), "k", 10)
		if there := err == nil; there != (want != nil) {
			t.Errorf("%v: it is still there: %v", c, there)
		}
		if err := s.DeleteIfMatch(t.Context(), "k", o.ETag); c == mem.Kept && err != nil {
			t.Errorf("%v: of this version: %v", c, err)
		}
	}
}
