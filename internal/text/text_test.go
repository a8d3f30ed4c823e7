package text

import (
	"encoding/json"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/test/assert"
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
		{"Ends", Ends("a"+strings.Repeat("é", 20)+"b", 9), "aé…éb"},
		{"Ends of a short text", Ends("aé\nb", 6), "aé b"},
		{"Word", Word("s3://a-b/c_d.e,f:1%2=@+"), "s3://a-b/c_d.e,f:1%2=@+"},
		{"Word of a space", Word("a b"), `'a b'`},
		{"Word of nothing", Word(""), `''`},
		{"ShellWord", ShellWord("it's"), `'it'\''s'`},
		{"ShellWord of control characters", ShellWord("a\x1b'é"), `$'a\x1b\x27\xc3\xa9'`},
	} {
		assert.Equal(t, c.got, c.want, c.name)
	}
}

func printable(s string) bool {
	return !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) })
}

func FuzzPrintable(f *testing.F) {
	f.Add("a\x00\x1b\x7f\u009b2J \u00a0\u202eevil\u2066\u200b\ufeff\U000e0041 é 日 🙂\xff")
	f.Fuzz(func(t *testing.T, s string) {
		for name, shown := range map[string]string{
			"Escape": Escape(s), "Brief": Brief(s), "Line": Line(s), "ShellWord": ShellWord(s),
		} {
			assert.That(t, printable(shown) && utf8.ValidString(shown), "%s of %q has a character that isn't printable: %q", name, s, shown)
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
		assert.Equal(t, Wrap(c.text, c.width, c.indent), c.want, "Wrap(%q, %d, %q)", c.text, c.width, c.indent)
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
		assert.Equal(t, Duration(d), want, d)
	}
	assert.Equal(t, Ago(3*time.Second), "3s ago")
	assert.Equal(t, Offset(-1500*time.Millisecond)+" "+Offset(51744*time.Hour)+" "+Offset(-49*time.Hour), "-1.5s 2156d -2d1h")
	assert.Equal(t, In(400*time.Millisecond)+", "+In(3*time.Second), "within 1s, in 3s")
}

// TestMarshal: the text has only printable characters, and its value stays the same.
func TestMarshal(t *testing.T) {
	s := "a\x00\x1b\x7f\u009b2J \u00a0\u202eevil\u2066\u200b\ufeff\U000e0041 é 日 🙂 <&> \\u009b \ufffd"
	for name, marshal := range map[string]func(any) ([]byte, error){
		"line":   Marshal,
		"indent": func(v any) ([]byte, error) { return MarshalIndent(v, "", "  ") },
	} {
		text, err := marshal(map[string]any{s: []string{s}})
		assert.OK(t, err)
		assert.That(t, printable(strings.ReplaceAll(string(text), "\n", "")), "%s: %q", name, text)
		assert.That(t, strings.Contains(string(text), "é 日 🙂"), "%s: a printable character was escaped: %s", name, text)
		var got map[string][]string
		assert.Is(t, json.Unmarshal(text, &got), nil, name)
		assert.Equal(t, got, map[string][]string{s: {s}}, name)
	}
	// Nor does it have bytes that are no characters, as a raw message can.
	text, err := Marshal(json.RawMessage("\"\x9b2J\""))
	assert.That(t, err == nil && string(text) == "\"\ufffd2J\"", "%q %v", text, err)
}
