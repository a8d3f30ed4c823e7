package doctor

import (
	"context"
	"io"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestRank: rank returns the nearest rank.
func TestRank(t *testing.T) {
	var sorted []time.Duration
	for i := range 200 {
		sorted = append(sorted, time.Duration(i+1))
	}
	for _, test := range []struct {
		n, percent int
		want       time.Duration
	}{{1, 50, 1}, {1, 99, 1}, {2, 50, 1}, {2, 99, 2}, {3, 50, 2}, {100, 50, 50}, {100, 99, 99}, {60, 99, 60}, {200, 99, 198}} {
		assert.Equal(t, rank(sorted[:test.n], test.percent), test.want, "%d%% of %d", test.percent, test.n)
	}
}

// TestInParallelEnds: after an error, no further call begins. The error is returned.
func TestInParallelEnds(t *testing.T) {
	var calls atomic.Int32
	err := inParallel(t.Context(), 10*workers, func(context.Context, int) error {
		calls.Add(1)
		return io.EOF
	})
	assert.Is(t, err, io.EOF)
	assert.That(t, calls.Load() <= workers, "%d calls", calls.Load())
}

// TestBrief: brief names three keys, and counts the others.
func TestBrief(t *testing.T) {
	for want, keys := range map[string][]string{
		"a": {"a"}, "a, b, c": {"a", "b", "c"}, "a, b, c, and 1 more": {"a", "b", "c", "d"}, "a, b, c, and 2 more": {"a", "b", "c", "d", "e"},
	} {
		assert.Equal(t, brief(keys), want)
	}
}
