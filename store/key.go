package store

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

// maxKey is the length that every store allows for a key, in bytes. S3 and B2 have this limit.
const maxKey = 1024

// CheckKey returns ErrInvalidKey, with the reason, for a key that could lead out of the
// repository, or that some store can't store. A key has 1 to 1024 bytes of UTF-8 without NUL
// and backslash. Its elements, between slashes, aren't empty, "." or "..".
func CheckKey(key string) error {
	bad := func(why string) error { return fmt.Errorf("%w: %s", ErrInvalidKey, why) }
	switch {
	case key == "":
		return bad("empty")
	case len(key) > maxKey:
		return bad("longer than 1024 bytes")
	case !utf8.ValidString(key):
		return bad("not UTF-8")
	case strings.ContainsAny(key, "\x00\\"):
		return bad("NUL or backslash")
	}
	for element := range strings.SplitSeq(key, "/") {
		switch element {
		case "", ".", "..":
			return bad(`an empty, "." or ".." element`)
		}
	}
	return nil
}
