//go:build unix

package starter

import (
	"slices"
	"strings"
	"testing"
)

func TestMessage(t *testing.T) {
	path, args, env := "/bin/x", []string{"x", "", "a\x00b", strings.Repeat("y", 100_000)}, []string{"A=1", "B="}
	message := Encode(path, args, env)
	p, a, e, ok := Decode(message)
	if !ok || p != path || !slices.Equal(a, args) || !slices.Equal(e, env) {
		t.Errorf("%q %.50q %q %v", p, a, e, ok)
	}
	// Whoever is killed while they write it has opened nothing.
	for n := range 200 {
		if _, _, _, ok := Decode(message[:n]); ok {
			t.Errorf("%d bytes of %d are understood", n, len(message))
		}
	}
	if _, _, _, ok := Decode(message[:len(message)-1]); ok {
		t.Error("all but the last byte is understood")
	}
	if _, _, _, ok := Decode(append(message, 0)); ok {
		t.Error("a byte more is understood")
	}
}

func TestNumber(t *testing.T) {
	a, rest := number("12 345")
	if b, end := number(rest); a != 12 || b != 345 || end != "" {
		t.Errorf("%d %d %q", a, b, end)
	}
}
