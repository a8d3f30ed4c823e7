//go:build unix

package starter

import "testing"

func TestNumber(t *testing.T) {
	a, rest := number("12 345")
	if b, end := number(rest); a != 12 || b != 345 || end != "" {
		t.Errorf("%d %d %q", a, b, end)
	}
}
