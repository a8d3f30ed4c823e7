package dir

import (
	"context"
	"fmt"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// check checks the context and the key of a method.
func check(ctx context.Context, key string) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return checkKey(key)
}

// checkKey is files.CheckKey, but also refuses names that the system doesn't allow.
func checkKey(key string) error {
	if err := files.CheckKey(key); err != nil {
		return err
	}
	for element := range strings.SplitSeq(key, "/") {
		if why := unfit(element); why != "" {
			return fmt.Errorf("%w: %q %s", store.ErrInvalidKey, element, why)
		}
	}
	return nil
}

// listable reports whether List can show a key.
func listable(key string) bool {
	return files.Listable(key) && (anyName || checkKey(strings.TrimSuffix(key, "/")) == nil)
}
