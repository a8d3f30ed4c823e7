package doctor

import (
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
