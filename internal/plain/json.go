// Package plain encodes JSON that can be shown on a terminal, whoever wrote the texts in it.
package plain

import (
	"bytes"
	"encoding/json"
	"fmt"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Marshal is json.Marshal with every character that isn't printable as \uXXXX: a control
// sequence can rewrite a screen, and a mark of direction turns a text around. The value is
// the same after decoding.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return escape(text), err
}

// MarshalIndent is Marshal in the form of json.MarshalIndent.
func MarshalIndent(v any, prefix, indent string) ([]byte, error) {
	text, err := json.MarshalIndent(v, prefix, indent)
	return escape(text), err
}

// escape changes strings alone: all else of JSON is ASCII. Below DEL, encoding/json has
// escaped what isn't printable.
func escape(text []byte) []byte {
	if !bytes.ContainsFunc(text, hidden) {
		return text
	}
	out := make([]byte, 0, len(text)+len(text)/8)
	for len(text) > 0 {
		r, n := utf8.DecodeRune(text)
		switch { // a byte that is no character decodes as U+FFFD, as json does it
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
