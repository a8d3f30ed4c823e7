package sim

import (
	"strings"
	"testing"
)

// TestHolesOfOtherProtocolsAreFound: the simulator finds each known hole of other protocols by
// itself, in histories with only the fault that opens the hole.
func TestHolesOfOtherProtocolsAreFound(t *testing.T) {
	const within = 1000
	for _, hole := range []struct {
		name     string
		protocol Protocol
		only     []Kind
		apart    bool
		kind     string
		text     string // of the violation
	}{
		{"original: exclusive and shared both granted", asOriginal{}, []Kind{}, false, "exclusion", "shared"},
		{"original: two exclusives both granted", asOriginal{}, []Kind{}, false, "exclusion", "exclusive lock [c1.1] is live beside c2's exclusive"},
		{"original: read errors count as free", asOriginal{}, []Kind{Busy}, true, "exclusion", ""},
		{"original: the reader's clock judges the writer's", asOriginal{}, []Kind{Skew}, true, "exclusion", ""},
		{"original: three failures take longer than the lease", asOriginal{}, []Kind{Outage}, true, "exclusion", ""},
		{"original: a stopped process carries on", asOriginal{}, []Kind{Pause}, true, "exclusion", ""},
		{"original: a refresh brings back a broken lock", asOriginal{}, []Kind{Break}, true, "unbroken", ""},
		{"restic: the reader's clock judges the writer's", asRestic{}, []Kind{Skew}, true, "exclusion", ""},
		{"restic: a broken lock isn't noticed", asRestic{}, []Kind{Break}, true, "unbroken", ""},
	} {
		t.Run(hole.name, func(t *testing.T) {
			other := map[string]int{}
			for seed := uint64(1); seed <= within; seed++ {
				config := Config{Seed: seed, Protocol: hole.protocol, Only: hole.only, Apart: hole.apart}
				r := Run(t, config)
				if v := r.Violation; v != nil && v.Kind == hole.kind && strings.Contains(v.Text, hole.text) {
					t.Logf("seed %d: %v", seed, *v)
					return
				} else if v != nil {
					other[v.Kind]++
				}
			}
			t.Errorf("not found in %d histories; found %v", within, other)
		})
	}
}
