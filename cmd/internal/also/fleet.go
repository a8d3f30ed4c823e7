package also

import (
	"context"
	"sync/atomic"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/towerfleet"
)

// fleet is a tower-fleet lock, whose release says how the work has ended (section 8).
type fleet struct {
	*towerfleet.Backend
	failed atomic.Bool
}

// Release implements locking.Backend. A lock that is released before the work has ended
// wasn't needed: another of the set was refused.
func (f *fleet) Release(ctx context.Context, h locking.Handle) error {
	if f.failed.Load() {
		return f.ReleaseAfter(ctx, h, towerfleet.Failure(""))
	}
	return f.ReleaseAfter(ctx, h, towerfleet.Success)
}

func (f *fleet) finish(success bool) { f.failed.Store(!success) }
