//go:build !linux

package dir

import (
	"context"
	"errors"
	"os"
)

// late is not known here.
var late map[string]string

func mountType(*os.File) string { return "" }

func flockHolder(*os.File) string { return heldByAnother }

func (*Store) watch(context.Context, string) (<-chan struct{}, error) {
	return nil, errors.ErrUnsupported
}
