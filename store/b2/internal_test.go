package b2

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// TestReason: after the end of a context, that is the reason for any error of blazer's.
func TestReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	_, answer := httptransport.Watch(ctx, nil)
	n := &note{Answer: answer, err: errors.New("no TLS")}
	assert.Is(t, n.reason(ctx, errors.New("x")), n.err)
	cancel()
	assert.Is(t, n.reason(ctx, errors.New("x")), context.Canceled)
}

// TestRemember: remember keeps the version that was stored last, in whatever order two concurrent puts
// are answered.
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
		s := &Store{wrote: map[string]version{}, unsettled: map[string]replacement{}}
		v, ok := s.remember("k", test.first)
		assert.That(t, !ok, "the first put has covered %v", v)
		v, ok = s.remember("k", test.second)
		assert.That(t, ok == (test.covered != "") && (!ok || v.id == test.covered),
			"%+v: covered %v, %v", test, v, ok)
	}
}
