package text

import "strings"

// Wrap breaks a text between words into lines of at most width columns, each after an indent. A
// longer word has a line of its own.
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
