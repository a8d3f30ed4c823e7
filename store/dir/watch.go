package dir

import (
	"context"
	"errors"

	"github.com/repolock/repolock/store"
)

var _ store.Watcher = (*Store)(nil)

// Watch has the kernel report the files that are removed from the folder of the prefix, and from
// the folders in it whose names go on as the prefix does. It returns errors.ErrUnsupported unless
// the file system is known to be this machine's own, because the kernel doesn't see what another
// machine removes, and on any system but Linux: BSD and macOS report a removal only of files that
// the watching process keeps open.
func (s *Store) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	if err := ctx.Err(); err != nil {
		return nil, failed("watch", prefix, err)
	}
	if !s.local {
		return nil, failed("watch", prefix, errors.ErrUnsupported)
	}
	hints, err := s.watch(ctx, prefix)
	return hints, failed("watch", prefix, err)
}
