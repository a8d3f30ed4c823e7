package dir

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
)

// check checks the context and the key of a method.
func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}

// checkKey is store.CheckKey, and also refuses temporary names and names that the system doesn't
// allow.
func checkKey(key string) error {
	if err := store.CheckKey(key); err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if isTemp(element) {
			return fmt.Errorf("%w: %q is a temporary file's name", store.ErrInvalidKey, element)
		}
		if why := unfit(element); why != "" {
			return fmt.Errorf("%w: %q %s", store.ErrInvalidKey, element, why)
		}
	}
	return nil
}

// listable reports whether List can show a key. A file can have a name that isn't a valid key. The
// key of a folder ends with a slash.
func listable(key string) bool {
	path := strings.TrimSuffix(key, "/")
	for element := range strings.SplitSeq(path, "/") {
		if element == "" || element == "." || element == ".." || isTemp(element) || strings.Contains(element, "\x00") {
			return false
		}
	}
	return anyName || checkKey(path) == nil
}

// split cuts a key after its last slash; dir is "" for a key in the root.
func split(key string) (dir, name string) {
	if i := strings.LastIndexByte(key, '/'); i >= 0 {
		return key[:i], key[i+1:]
	}
	return "", key
}

const (
	tempPrefix = ".repolock-"
	tempSuffix = ".tmp"
)

// newTemp returns a temporary name that no other process uses.
func newTemp() string { return tempPrefix + rand.Text() + tempSuffix }

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}
