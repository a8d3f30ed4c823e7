// Package text makes texts of other programs safe to show on a terminal, where a control sequence can rewrite the
// screen and a direction mark can reverse text. It also formats durations, and wraps lines.
package text

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// Escape replaces each character that isn't printable by an escape sequence of Go, and each byte that isn't UTF-8 by
// U+FFFD.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		escapeRune(&b, r, unprintable(r))
	}
	return b.String()
}

// maxBrief is the length in bytes at which Brief cuts.
const maxBrief = 256

// Brief escapes a field of a lock's body, and cuts it at 256 bytes. It also escapes backslashes, so that different
// fields look different.
func Brief(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > maxBrief {
			b.WriteString("…")
			break
		}
		escapeRune(&b, r, r == '\\' || unprintable(r))
	}
	return b.String()
}

// Or returns Brief of s, or other if s is blank.
func Or(s, other string) string {
	if strings.TrimSpace(s) == "" {
		return other
	}
	return Brief(s)
}

// maxLine is the length in bytes at which Line cuts.
const maxLine = 200

// Line makes one line from a server's message, and cuts it at 200 bytes. It replaces each run of spaces and of
// characters that aren't printable by one space.
func Line(s string) string { return Cut(line(s), maxLine) }

// line is Line, but cuts nothing off.
func line(s string) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(s, "\ufffd"), func(r rune) bool { return unicode.IsSpace(r) || unprintable(r) })
	return strings.Join(fields, " ")
}

// Cut shortens s to at most n bytes of whole characters. It appends an ellipsis if it has cut s.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Ends is Line for an explanation of at most n bytes: it cuts out the middle, because the reason can be at the end.
func Ends(s string, n int) string {
	s = line(s)
	if len(s) <= n {
		return s
	}
	return Cut(s, n/2) + strings.ToValidUTF8(s[len(s)-n/2:], "")
}

// Quote quotes s as one word for any shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

var bareWord = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./-]+$`)

// Word returns s as one word of a shell: without quotes if it needs none, as ShellWord otherwise.
func Word(s string) string {
	if bareWord.MatchString(s) {
		return s
	}
	return ShellWord(s)
}

// ShellWord quotes s as one word for bash, in printable characters.
func ShellWord(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return unprintable(r) || r == utf8.RuneError }) {
		return Quote(s)
	}
	var b strings.Builder
	for i := range len(s) {
		if c := s[i]; c < ' ' || c > '~' || c == '\'' || c == '\\' {
			fmt.Fprintf(&b, `\x%02x`, c)
		} else {
			b.WriteByte(c)
		}
	}
	return "$'" + b.String() + "'"
}

func unprintable(r rune) bool { return !unicode.IsPrint(r) }

func escapeRune(b *strings.Builder, r rune, escaped bool) {
	if !escaped {
		b.WriteRune(r)
		return
	}
	q := strconv.QuoteRuneToASCII(r)
	b.WriteString(q[1 : len(q)-1])
}

// maxError is the length in bytes at which Error cuts.
const maxError = 4096

// Error returns the text of an error as one line that is safe to show on a terminal. It cuts the line at 4,096 bytes.
func Error(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return Cut(Escape(strings.Join(lines, "; ")), maxError)
}

// Marshal is json.Marshal, but writes every character that isn't printable as \uXXXX. Decoding returns the same
// value.
func Marshal(v any) ([]byte, error) {
	text, err := json.Marshal(v)
	return escapeJSON(text), err
}

// MarshalIndent is json.MarshalIndent, but escapes as Marshal does.
func MarshalIndent(v any, prefix, indent string) ([]byte, error) {
	text, err := json.MarshalIndent(v, prefix, indent)
	return escapeJSON(text), err
}

// escapeJSON changes only strings, because the rest of JSON is ASCII. encoding/json has already escaped the control
// characters below U+007F.
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

// Wrap breaks a text between words into lines of at most width characters, and begins each line with indent. A word
// that is longer than a line has its own line.
func Wrap(s string, width int, indent string) string {
	var b strings.Builder
	at := 0
	for _, word := range strings.Fields(s) {
		n := len([]rune(word))
		switch {
		case at == 0:
			b.WriteString(indent)
			at = len(indent)
		case at+1+n > width:
			b.WriteString("\n" + indent)
			at = len(indent)
		default:
			b.WriteByte(' ')
			at++
		}
		b.WriteString(word)
		at += n
	}
	return b.String()
}

// Duration formats a duration for people, in at most two units: 34s, 2m14s, 2h14m, 3d4h.
func Duration(d time.Duration) string {
	s := int(max(d, 0).Round(time.Second) / time.Second)
	units := [...]struct {
		name    string
		seconds int
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}}
	for i, u := range units {
		if s < u.seconds || u.seconds == 1 {
			continue
		}
		large, next := s/u.seconds, units[i+1]
		small := s % u.seconds / next.seconds
		if small == 0 {
			return fmt.Sprintf("%d%s", large, u.name)
		}
		return fmt.Sprintf("%d%s%d%s", large, u.name, small, next.name)
	}
	return fmt.Sprintf("%ds", s)
}

// Offset formats the difference of two clocks: a small one in milliseconds, a large one as Duration does.
func Offset(d time.Duration) string {
	switch {
	case d.Abs() < time.Hour:
		return d.Round(time.Millisecond).String()
	case d < 0:
		return "-" + Duration(-d)
	default:
		return Duration(d)
	}
}

// In formats the time until an event: in 3s, or within 1s.
func In(d time.Duration) string {
	if d < time.Second {
		return "within 1s"
	}
	return "in " + Duration(d)
}

// Ago formats the time since an event: 3s ago.
func Ago(d time.Duration) string { return Duration(d) + " ago" }
