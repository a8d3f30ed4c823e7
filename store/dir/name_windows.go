package dir

import (
	"path/filepath"
	"strings"
)

// anyName: a backslash would be a slash here.
const anyName = false

// unfit says why a name that is a valid key can't be a file's. A colon would
// even write to a hidden stream of another file.
func unfit(name string) string {
	switch {
	case strings.ContainsAny(name, `<>:"|?*`) || strings.ContainsFunc(name, func(r rune) bool { return r < ' ' }):
		return `has a character that Windows doesn't allow in a file's name`
	case strings.HasSuffix(name, ".") || strings.HasSuffix(name, " "):
		return "ends with a dot or a space, which Windows drops"
	case !filepath.IsLocal(name):
		return "is a device's name on Windows"
	}
	return ""
}
