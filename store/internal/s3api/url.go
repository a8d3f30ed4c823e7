package s3api

import (
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
)

// Prefix returns the prefix of keys for a URL's path.
func Prefix(path string) (string, error) {
	prefix := strings.Trim(path, "/")
	if prefix == "" {
		return "", nil
	}
	if err := store.CheckKey(prefix); err != nil {
		return "", fmt.Errorf("%w: the prefix in it is no key: %w", store.ErrURL, err)
	}
	return prefix + "/", nil
}

// Conditions parses the parameter conditions=.
func Conditions(value string, byDefault store.Condition) (store.Condition, error) {
	switch value {
	case "":
		return byDefault, nil
	case "auto":
		return store.Claimed, nil
	case "kept":
		return store.Kept, nil
	case "none":
		return store.Unsupported, nil
	default:
		return 0, fmt.Errorf("%w: conditions= is auto, kept or none", store.ErrURL)
	}
}

// Bool parses a parameter that is true or false.
func Bool(name, value string, byDefault bool) (bool, error) {
	switch value {
	case "":
		return byDefault, nil
	case "true":
		return true, nil
	case "false":
		return false, nil
	default:
		return false, fmt.Errorf("%w: %s= is true or false", store.ErrURL, name)
	}
}
