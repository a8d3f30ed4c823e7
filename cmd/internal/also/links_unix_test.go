//go:build unix

package also

import (
	"errors"
	"os"
	"strings"
	"testing"
)

// TestSymbolicLinks: a directory is one lock's under each of its names, whether the lock is there
// or not. The lock is shown as it was named.
func TestSymbolicLinks(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := errors.Join(os.MkdirAll("p/.beads", 0o700), os.Symlink("p", "p2")); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		a, b string
		same bool
	}{
		{"beads:p", "beads:p2", true},
		{"beads:p", "beads:p2/.beads", true},
		{"beads:p/none", "beads:p2/none", true},
		{"beads:p/one", "beads:p2/two", false},
		{"tower-fleet:p/a", "tower-fleet:p2/a", true},
		{"tower-fleet:p/none/a", "tower-fleet:p2/none/a", true},
		{"tower-fleet:p/none/more/a", "tower-fleet:p2/none/more/a", true},
		{"tower-fleet:p/a", "tower-fleet:p2/b", false},
	} {
		_, err := Parse([]string{c.a, c.b})
		if same := err != nil; same != c.same || same && !strings.Contains(err.Error(), "named twice") {
			t.Errorf("%s and %s: %v", c.a, c.b, err)
		}
		a, b := place(t, c.a), place(t, c.b)
		if same := a.ID() == b.ID(); same != c.same {
			t.Errorf("%s and %s are one place: %t", c.a, c.b, same)
		}
		if a.URL == b.URL || !strings.Contains(b.URL, "/p2/") {
			t.Errorf("%s is shown as %s", c.b, b.URL)
		}
	}
}
