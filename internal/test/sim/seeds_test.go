package sim

import "testing"

// TestKnownSeedsPass: the engine violates nothing in the histories of these seeds, in each of
// which a bug would show: docs/testing.md. go run ./internal/test/sim/mutants puts bugs back.
func TestKnownSeedsPass(t *testing.T) {
	for seed, bug := range map[uint64]string{
		106: "the store's time wasn't looked for on a later page",
		1:   "flags that were emptied were never removed",

		2998549: "a request that hung left no time for another",
	} {
		if r := Run(t, Config{Seed: seed}); r.Violation != nil {
			t.Errorf("seed %d: %s: %v", seed, bug, *r.Violation)
		}
	}
}
