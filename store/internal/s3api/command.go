package s3api

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// deletion is the command with which a person deletes what has a key that we take for none.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + quote(p.Endpoint)
	}
	return command + " --bucket " + quote(p.Bucket) + " --key " + quote(p.Prefix+key)
}

// quote makes one word of it for bash, of characters that can be shown.
func quote(s string) string {
	if !strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) || r == utf8.RuneError }) {
		return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
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
