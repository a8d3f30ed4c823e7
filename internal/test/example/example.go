// Package example runs a test in an example, whose output go test compares.
package example

import (
	"flag"
	"testing"
)

// Passes runs a test, and reports whether it passed. It prints nothing then, even with -v.
func Passes(test func(t *testing.T)) bool {
	verbose := flag.Lookup("test.v").Value.String()
	_ = flag.Set("test.v", "false")
	defer func() { _ = flag.Set("test.v", verbose) }()
	all := func(_, _ string) (bool, error) { return true, nil } // whatever -run is
	return testing.RunTests(all, []testing.InternalTest{{Name: "TestContract", F: test}})
}
