package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal is json.Marshal with every character that isn't printable as \uXXXX. The value
// is the same after decoding.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return escapeJSON(text), err
}

// MarshalIndent is Marshal in the form of json.MarshalIndent.
func MarshalIndent(v any, prefix, indent string) ([]byte, error) {
	text, err := json.MarshalIndent(v, prefix, indent)
	return escapeJSON(text), err
}

// escapeJSON changes only strings, because the rest of JSON is ASCII. encoding/json has
// escaped the control characters below DEL already.
func escapeJSON(text []byte) []byte {
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch { // an invalid byte becomes U+FFFD, as in encoding/json
		case r == utf8.RuneError && n == 1:
			out = utf8.AppendRune(out, r)
		case !hidden(r):
			out = append(out, text[:n]...)
		case r > 0xffff:
			high, low := utf16.EncodeRune(r)
			out = fmt.Appendf(out, `\u%04x\u%04x`, high, low)
		default:
			out = fmt.Appendf(out, `\u%04x`, r)
		}
		text = text[n:]
	}
	return out
}

func hidden(r rune) bool { return r >= 0x7f && !unicode.IsPrint(r) || r == utf8.RuneError }
