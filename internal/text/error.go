package text

import "strings"

// maxError is the length at which Error cuts.
const maxError = 4096

// Error makes one line of an error's text, which can join several errors and quote what
// another program wrote. It is safe to show on a terminal, and is cut at 4,096 bytes.
func Error(err error) string {
	lines := strings.FieldsFunc(err.Error(), func(r rune) bool { return r == '\n' || r == '\r' })
	return Cut(Escape(strings.Join(lines, "; ")), maxError)
}
