package fakeb2

import (
	"net/url"
	"strings"
	"unicode/utf8"
)

// checkName checks the rules of "File Names".
func checkName(name string) error {
	switch {
	case name == "" || len(name) > 1024 || !utf8.ValidString(name):
		return badRequest("File names must be 1 to 1024 bytes of UTF-8")
	case strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//"):
		return badRequest("File names must not start or end with '/', nor contain '//'")
	case strings.ContainsFunc(name, func(r rune) bool { return r < 32 || r == 127 || r == '\\' }):
		return badRequest("File names must not contain control characters, DEL or backslashes")
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 250 {
			return badRequest("File name segments must not be longer than 250 bytes")
		}
	}
	return nil
}

// decode reads a name as it is written in URLs and headers: a plus sign is a
// space there.
func decode(encoded string) (string, error) {
	name, err := url.QueryUnescape(encoded)
	if err != nil {
		return "", badRequest("Bad percent-encoding of %q", encoded)
	}
	return name, nil
}

func encode(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "%2F", "/") }
