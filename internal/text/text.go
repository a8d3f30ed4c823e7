// Package text makes a text that another program wrote safe to show on a terminal: a
// control sequence can rewrite a screen, and a direction mark turns a text around.
package text

import (
	"fmt"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Escape writes each character that isn't printable as an escape sequence of Go, and
// U+FFFD for bytes that are no UTF-8.
func Escape(s string) string {
	var b strings.Builder
	for _, r := range s {
		escapeRune(&b, r, unprintable(r))
	}
	return b.String()
}

// maxBrief is the length at which Brief cuts.
const maxBrief = 256

// Brief is Escape for a field of a lock's body. It escapes backslashes too, so that two
// different fields look different, and cuts at 256 bytes.
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

// Or is Brief of s, or other if s is blank.
func Or(s, other string) string {
	if strings.TrimSpace(s) == "" {
		return other
	}
	return Brief(s)
}

// maxLine is the length at which Line cuts.
const maxLine = 200

// Line makes one line of a server's message: a space replaces spaces and characters that
// aren't printable. It cuts at 200 bytes.
func Line(s string) string {
	fields := strings.FieldsFunc(strings.ToValidUTF8(s, "\ufffd"), func(r rune) bool { return unicode.IsSpace(r) || unprintable(r) })
	return Cut(strings.Join(fields, " "), maxLine)
}

// Cut shortens s to at most n bytes, of whole characters, and appends an ellipsis.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}

// Quote quotes s as one word for any shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

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

// maxError is the length at which Error cuts.
const maxError = 4096

// Error makes one line of an error's text, which can join several errors and quote what
// another program wrote. It is safe to show on a terminal, and is cut at 4,096 bytes.
func Error(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return Cut(Escape(strings.Join(lines, "; ")), maxError)
}
