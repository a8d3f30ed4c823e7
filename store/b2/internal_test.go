package b2

import (
	"context"
	"errors"
	"testing"
	"time"
)

// TestReason: after a context has ended, its end is the reason, whatever error blazer returns.
func TestReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := &note{err: errors.New("operation was canceled")}
	if err := n.reason(ctx, errors.New("x")); !errors.Is(err, n.err) {
		t.Error(err)
	}
	cancel()
	for _, n := range []*note{n, {}} {
		if err := n.reason(ctx, errors.New("x")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// TestRemember: remember keeps the put that was stored last, in whatever order two concurrent
// puts are answered.
func TestRemember(t *testing.T) {
	at := func(id string, ms int64) version { return version{id: id, time: time.UnixMilli(ms)} }
	for _, test := range []struct {
		first, second version
		covered       string
	}{
		{at("a", 1), at("b", 2), "a"},
		{at("b", 2), at("a", 1), "a"},
		{at("a", 1), at("b", 1), ""}, // unknown
	} {
		s := &Store{wrote: map[string]version{}, owed: map[string]claim{}}
		if v, ok := s.remember("k", test.first); ok {
			t.Errorf("the first put has covered %v", v)
		}
		v, ok := s.remember("k", test.second)
		if ok != (test.covered != "") || ok && v.id != test.covered {
			t.Errorf("%v, then %v: covered %v, %v", test.first, test.second, v, ok)
		}
	}
}
