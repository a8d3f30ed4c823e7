package text

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestEscapes(t *testing.T) {
	long := strings.Repeat("é", 200)
	for _, c := range []struct{ name, got, want string }{
		{"Escape", Escape("a\x1b[2J\u202e\n\\é"), `a\x1b[2J\u202e\n\é`},
		{"Escape of a printable text", Escape(`C:\é`), `C:\é`},
		{"Escape of bytes that are no UTF-8", Escape("a\x9b2J"), "a\ufffd2J"},
		{"Brief", Brief("a\x1b\\é"), `a\x1b\\é`},
		{"Brief of a long text", Brief(long), long[:258] + "…"},
		{"Or", Or(" \t", "unknown"), "unknown"},
		{"Or of a text", Or("a\x00", "unknown"), `a\x00`},
		{"Line", Line(" a\x1b\n\u202e b\x00c "), "a b c"},
		{"Line of a long text", Line("a" + long), "a" + long[:198] + "…"},
		{"Cut", Cut("éé", 3), "é…"},
		{"Cut of a short text", Cut("éé", 4), "éé"},
		{"ShellWord", ShellWord("it's"), `'it'\''s'`},
		{"ShellWord of control characters", ShellWord("a\x1b'é"), `$'a\x1b\x27\xc3\xa9'`},
	} {
		if c.got != c.want {
			t.Errorf("%s: %q, want %q", c.name, c.got, c.want)
		}
	}
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x00\x1b\x7f\u009b2J \u00a0\u202eevil\u2066\u200b\ufeff\U000e0041 é 日 🙂\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for name, shown := range map[string]string{
			"Escape": Escape(s), "Brief": Brief(s), "Line": Line(s), "ShellWord": ShellWord(s),
		} {
			if strings.ContainsFunc(shown, func(r rune) bool { return !unicode.IsPrint(r) }) || !utf8.ValidString(shown) {
				t.Errorf("%s of %q has a character that isn't printable: %q", name, s, shown)
			}
		}
	})
}
