package dir

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// maxQuiet is how often quietNames tries. It is seconds before it gives up.
const maxQuiet = 2000

// quietNames does what names does, on a file system on which an open directory shows no name that came after it was opened (btrfs).
// There a scan misses a file that is replaced between the open and the read, however many scans agree.
//
// So only a quiet scan counts: the directory wasn't changed from before its open until after its last read. Then its
// time of change (ctime), which no program can set, is the same before and after. The kernel stamps changes with a
// clock that stands still within a tick. So two changes in one tick have the same time, and a scan can't begin in the
// tick of the last change. The next tick is at most 10 ms away.
func (s *Store) quietNames(ctx context.Context, d *directory, wanted files.Wanted) ([]string, error) {
	for n := range maxQuiet {
		changed, now, err := s.stamps(d)
		if errors.Is(err, fs.ErrNotExist) {
			return nil, nil
		}
		if err != nil {
			return nil, err
		}
		if sameTick(changed, now) {
			time.Sleep(time.Millisecond)
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			continue
		}
		names, err := s.scan(ctx, d, wanted)
		if err != nil {
			return nil, err
		}
		again, _, err := s.stamps(d)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		if again.Equal(changed) {
			return files.Set(names), nil
		}
		if n > 10 {
			time.Sleep(time.Millisecond) // there are many writers
		}
	}
	return nil, fmt.Errorf("%w: %q is changed all the time", store.ErrListing, d.full("."))
}

// sameTick reports whether a change now can get the time of the last change. Some file systems round it down to
// seconds. If the last change has a time in the future, the clock was set back since, and a change now gets another
// time.
func sameTick(changed, now time.Time) bool {
	age := now.Sub(changed)
	return age == 0 || changed.Nanosecond() == 0 && age > 0 && age < time.Second
}
