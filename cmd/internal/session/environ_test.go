package session

import (
	"slices"
	"testing"
)

// TestMalformedOuterLocksStay: entries of other forms are passed on as they are.
func TestMalformedOuterLocksStay(t *testing.T) {
	p := Place{Repo: "s3://bucket"}
	for _, outer := range []string{"aa", "aa:", ":place", ":", "aa:place:", "aa:place:no-token:", "aa:place:no:token::"} {
		t.Setenv(outerVariable, outer)
		want := outerVariable + "=" + outer + " bb:" + p.ID()
		if got := Environ([]Place{p}, []string{"bb"}, "shared", 0, ""); !slices.Contains(got, want) {
			t.Errorf("%q became %q", outer, got)
		}
	}
}
