package also

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"sync/atomic"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/towerfleet"
)

// fleet is a tower-fleet lock, whose release says how the work has ended (section 8).
type fleet struct {
	*towerfleet.Backend
	step   string // the work's name, for its failure
	failed atomic.Bool
	record atomic.Pointer[func(event any)]
}

// audit gets the events of the lock, in the specification's form.
func (f *fleet) audit(event any) {
	if record := f.record.Load(); record != nil {
		(*record)(event)
	}
}

// listen passes the events on from now.
func (f *fleet) listen(record func(event any)) { f.record.Store(&record) }

// Release implements locking.Backend. A lock that is released before the work has ended
// wasn't needed: another of the set was refused.
func (f *fleet) Release(ctx context.Context, h locking.Handle) error {
	result := towerfleet.Result{Failed: f.failed.Load(), Step: f.step}
	return f.ReleaseAfter(ctx, h, result)
}

func (f *fleet) finish(success bool) { f.failed.Store(!success) }

// mode is the mode of the intent. One that observes creates no directory, and a lock can't be
// broken where there is none.
func mode(dir string, p Purpose) towerfleet.Mode {
	_, err := os.Stat(dir)
	if p == Look || p == Break && errors.Is(err, fs.ErrNotExist) {
		return towerfleet.Observe
	}
	return towerfleet.Mutate
}

func metadata(all map[string]string) map[string]any {
	m := map[string]any{}
	for k, v := range all {
		m[k] = v
	}
	return m
}
