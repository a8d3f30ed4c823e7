package sim

import "testing"

// TestFoundSeeds runs the histories again that showed bugs of the engine, as
// docs/testing.md tells; go run ./internal/sim/mutants puts the bugs back, and finds
// them by these.
func TestFoundSeeds(t *testing.T) {
	for seed, bug := range map[uint64]string{
		842:  "the store's time wasn't looked for on a later page",
		1:    "flags that were emptied were never removed",
		1675: "the probe of break-lock --stale was left for good",
		4911: "break-lock --stale broke a lock that was live",
	} {
		if r := Run(t, Config{Seed: seed}); r.Violation != nil {
			t.Errorf("seed %d: %s: %v", seed, bug, *r.Violation)
		}
	}
}
