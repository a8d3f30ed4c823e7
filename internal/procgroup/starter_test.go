//go:build unix

package procgroup

import (
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/procgroup/starter"
)

// TestMessage: the starter opens nothing for an incomplete message.
func TestMessage(t *testing.T) {
	path, args, env := "/bin/x", []string{"x", "", "a\x00b", strings.Repeat("y", 100_000)}, []string{"A=1", "B="}
	text := string(message(path, args, env))
	p, a, e, ok := starter.Decode(text)
	if !ok || p != path || !slices.Equal(a, args) || !slices.Equal(e, env) {
		t.Errorf("%q %.50q %q %v", p, a, e, ok)
	}
	for n := range 200 {
		if _, _, _, ok := starter.Decode(text[:n]); ok {
			t.Errorf("%d bytes of %d are understood", n, len(text))
		}
	}
	if _, _, _, ok := starter.Decode(text[:len(text)-1]); ok {
		t.Error("all but the last byte is understood")
	}
	if _, _, _, ok := starter.Decode(text + "\x00"); ok {
		t.Error("a byte more is understood")
	}
}
