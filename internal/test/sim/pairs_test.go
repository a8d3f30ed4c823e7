package sim

import (
	"testing"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
)

// faults are the pairs that break a rule, each with the reason why that stays.
var faults = []struct {
	mode      replock.Mode
	a, b      string
	violation string
	why       string
}{
	{replock.Exclusive, "pages of two", "a shared lock of another client", "beside", "a look reads the first page of the listing"},
	{replock.Exclusive, "pages of two", "a shared lock of another client, with a late name", "beside", "the same"},
}

// TestPairs: no pair of features breaks a rule, except for the known faults. A mended fault must leave the
// table.
func TestPairs(t *testing.T) {
	for _, x := range Pairs() {
		known := ""
		for _, f := range faults {
			if f.mode == x.Mode && f.a == x.A.Name && f.b == x.B.Name {
				known = f.violation
			}
		}
		t.Run(x.String(), func(t *testing.T) {
			t.Parallel()
			for seed := range rounds.Fewer[uint64](5, 1) {
				config := Config{Seed: 1 + seed, Only: []Kind{}, Pair: x}
				switch r := Run(t, config); {
				case r.Violation == nil && known != "":
					t.Errorf("seed %d: the known fault %q doesn't show any more", config.Seed, known)
				case r.Violation != nil && r.Violation.Kind != known:
					config.Trace = true
					t.Errorf("seed %d: %v\n%s", config.Seed, *r.Violation, Run(t, config).Timeline)
				}
			}
		})
	}
}
