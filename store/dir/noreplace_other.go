//go:build !linux && !darwin

package dir

import (
	"os"

	"github.com/repolock/repolock/store"
)

// There is no such rename here.
func renameNoReplace(*os.Root, string, string) error { return store.ErrConditionUnsupported }
