package main

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/replock"
)

// TestNoMoreIsCountedThanIsKnown: an event of a wait names a bounded number of holders, and doesn't say
// how many more there are. An error of a refusal does.
func TestNoMoreIsCountedThanIsKnown(t *testing.T) {
	some := func(n int) []replock.Info {
		all := make([]replock.Info, n)
		for i := range all {
			all[i].Operation, all[i].Holder = "backup", "web1"
		}
		return all
	}
	for _, c := range []struct {
		named, more  int
		begins, ends string
	}{
		{1, 0, "backup on web1", "web1"},
		{3, 0, "3: ", "web1"},
		{15, 0, "15: ", "; … 12 more: repolock status"},
		{16, 0, "16 or more: ", "; … more: repolock status"},
		{16, 14, "30: ", "; … 27 more: repolock status"},
	} {
		if s := holders(some(c.named), c.more, 0); !strings.HasPrefix(s, c.begins) || !strings.HasSuffix(s, c.ends) {
			t.Errorf("%d named and %d more: %s", c.named, c.more, s)
		}
	}
}
