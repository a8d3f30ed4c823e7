package text

import "testing"

func TestWrap(t *testing.T) {
	for _, c := range []struct {
		text   string
		width  int
		indent string
		want   string
	}{
		{"", 10, "  ", ""},
		{"one two", 7, "", "one two"},
		{"one two", 6, "", "one\ntwo"},
		{"one two three", 9, "  ", "  one two\n  three"},
		{"a-very-long-word b", 5, " ", " a-very-long-word\n b"},
		{" spaces \n and\tlines ", 80, "", "spaces and lines"},
		{"ü ü", 3, "", "ü ü"},
	} {
		if got := Wrap(c.text, c.width, c.indent); got != c.want {
			t.Errorf("Wrap(%q, %d, %q) = %q, want %q", c.text, c.width, c.indent, got, c.want)
		}
	}
}
