//go:build !linux

package dir

import (
	"context"
	"errors"
)

func (*Store) watch(context.Context, string) (<-chan struct{}, error) {
	return nil, errors.ErrUnsupported
}
