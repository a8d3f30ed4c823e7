package text

import (
	"encoding/json"
	"strings"
	"testing"
	"unicode"
)

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
}

// TestRaw: nor does it have bytes that are no characters, as a raw message can.
func TestRaw(t *testing.T) {
	text, err := Marshal(json.RawMessage("\"\x9b2J\""))
	if err != nil || string(text) != "\"\ufffd2J\"" {
		t.Errorf("%q %v", text, err)
	}
}
