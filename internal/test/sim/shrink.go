package sim

import (
	"fmt"
	"slices"
	"testing"
)

// maxShrinks is how many histories Shrink tries at most.
const maxShrinks = 1000

// Shrink leaves out of a history all parts that its violation doesn't need, and returns the
// rest, traced.
func Shrink(t *testing.T, config Config) (Config, Result) {
	config.Trace = true
	result := Run(t, config)
	if result.Violation == nil {
		return config, result
	}
	tries := 0
	// without reports whether the violation also happens without these parts, and if so leaves
	// them out.
	without := func(names ...string) bool {
		if tries++; tries > maxShrinks {
			return false
		}
		smaller := config
		smaller.Without = append(slices.Clip(config.Without), names...)
		r := Run(t, smaller)
		if r.Violation == nil || r.Violation.Kind != result.Violation.Kind {
			return false
		}
		config, result = smaller, r
		return true
	}
	for again := true; again; {
		again = false
		for _, name := range parts(config) {
			if !slices.Contains(config.Without, name) && without(name) {
				again = true
			}
		}
		// Single faults: by halves first, since there can be many.
		for n := len(result.Fired); n > 0; n /= 2 {
			for from := 0; from < len(result.Fired); {
				some := result.Fired[from:min(from+n, len(result.Fired))]
				if without(some...) {
					again = true // and Fired is another
				} else {
					from += n
				}
			}
		}
	}
	config.Without = needed(config)
	return config, result
}

// parts are the parts that can be left out as a whole, the largest first.
func parts(config Config) (names []string) {
	p := newPlan(&config)
	for n, c := range p.clients {
		if len(c.steps) > 0 {
			names = append(names, fmt.Sprintf("c%d", n+1))
		}
	}
	for _, k := range Kinds() {
		names = append(names, k.String())
	}
	for _, c := range p.clients {
		for _, s := range c.steps {
			names = append(names, s.name)
		}
	}
	return names
}

// needed returns Without, without the entries that another one implies.
func needed(config Config) []string {
	return slices.DeleteFunc(slices.Clone(config.Without), func(name string) bool {
		for _, other := range config.Without {
			if n := len(other); len(name) > n && name[:n] == other && (name[n] == '.' || name[n] == ':') {
				return true
			}
		}
		return false
	})
}
