package s3api

import (
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
)

// Options parses the options that all repositories in buckets have: the prefix of keys, as in a URL's path, and
// conditions=.
func Options(path, conditions string, byDefault store.Condition) (prefix string, _ store.Condition, err error) {
	if prefix = strings.Trim(path, "/"); prefix != "" {
		if err := store.CheckKey(prefix); err != nil {
			return "", 0, fmt.Errorf("%w: the prefix in it is no key: %w", store.ErrURL, err)
		}
		prefix += "/"
	}
	known := map[string]store.Condition{"": byDefault, "auto": store.Claimed, "kept": store.Kept, "none": store.Unsupported}
	condition, ok := known[conditions]
	if !ok {
		return "", 0, fmt.Errorf("%w: conditions= is auto, kept or none", store.ErrURL)
	}
	return prefix, condition, nil
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
