package text

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
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

// TestDuration: a length of time has at most two units, which follow one another.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                          "0s",
		0:                                     "0s",
		400 * time.Millisecond:                "0s",
		600 * time.Millisecond:                "1s",
		59*time.Second + 600*time.Millisecond: "1m",
		134 * time.Second:                     "2m14s",
		time.Hour:                             "1h",
		time.Hour + 5*time.Second:             "1h",
		134 * time.Minute:                     "2h14m",
		24 * time.Hour:                        "1d",
		76 * time.Hour:                        "3d4h",
		76*time.Hour + 3*time.Minute:          "3d4h",
		1000 * 24 * time.Hour:                 "1000d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) is %q, want %q", d, got, want)
		}
	}
	if got := Ago(3 * time.Second); got != "3s ago" {
		t.Errorf("Ago is %q", got)
	}
}

// TestMarshal: the text has only printable characters, and its value stays the same.
func TestMarshal(t *testing.T) {
	s := "a\x00\x1b\x7f\u009b2J \u00a0\u202eevil\u2066\u200b\ufeff\U000e0041 é 日 🙂 <&> \\u009b \ufffd"
	for name, marshal := range map[string]func(any) ([]byte, error){
		"line":   Marshal,
		"indent": func(v any) ([]byte, error) { return MarshalIndent(v, "", "  ") },
	} {
		text, err := marshal(map[string]any{s: []string{s}})
		if err != nil {
			t.Fatal(err)
		}
		if strings.ContainsFunc(strings.ReplaceAll(string(text), "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }) {
			t.Errorf("%s: %q", name, text)
		}
		if !strings.Contains(string(text), "é 日 🙂") {
			t.Errorf("%s: a printable character was escaped: %s", name, text)
		}
		var got map[string][]string
		if err := json.Unmarshal(text, &got); err != nil || len(got[s]) != 1 || got[s][0] != s {
			t.Errorf("%s: %v\n%s", name, err, text)
		}
	}
	// Nor does it have bytes that are no characters, as a raw message can.
	text, err := Marshal(json.RawMessage("\"\x9b2J\""))
	if err != nil || string(text) != "\"\ufffd2J\"" {
		t.Errorf("%q %v", text, err)
	}
}
