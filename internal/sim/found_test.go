package sim

import "testing"

// TestFoundSeeds runs the histories again that showed bugs of the engine, as
// docs/testing.md tells; go run ./internal/sim/mutants puts those back that don't take
// longer to find.
func TestFoundSeeds(t *testing.T) {
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
