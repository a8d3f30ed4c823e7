package sim

import (
	"testing"

	"github.com/repolock/repolock/internal/test/rounds"
)

// TestCrowd: histories with deletions of many objects violate nothing. No other histories have
// them.
func TestCrowd(t *testing.T) {
	for seed := range uint64(rounds.Fewer(200, 40)) {
		config := Config{Seed: 1 + seed, Scene: Crowd}
		if r := Run(t, config); r.Violation != nil {
			t.Errorf("seed %d: %v: again: %s", config.Seed, *r.Violation, again(config))
		}
	}
}
