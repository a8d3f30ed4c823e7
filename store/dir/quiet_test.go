package dir

import (
	"context"
	"io/fs"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// TestQuietNames: on a file system that hides new names in an open directory, only a scan counts during which the
// directory wasn't changed, and which began after the tick of the last change.
func TestQuietNames(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 600, time.UTC)
	for name, c := range map[string]struct {
		changes []time.Duration // times of change during each scan, from start on; -1 for none
		changed time.Duration   // the last change before
		round   time.Duration   // what times of change are rounded to
		want    string
		waits   time.Duration
	}{
		"quiet":                {changes: []time.Duration{-1}, changed: -time.Hour, want: "0"},
		"changed twice":        {changes: []time.Duration{1, 1, -1}, changed: -time.Hour, want: "2", waits: 8 * time.Millisecond},
		"changed in this tick": {changes: []time.Duration{-1}, changed: 0, want: "0", waits: 4 * time.Millisecond},
		"a clock that was set": {changes: []time.Duration{1, -1}, changed: time.Hour, want: "1", waits: 4 * time.Millisecond},
		"rounded to seconds":   {changes: []time.Duration{-1}, changed: 0, round: time.Second, want: "0", waits: time.Second - 600},
		"changed all the time": {changes: make([]time.Duration, 2*maxQuiet), changed: -time.Hour, want: "fails"},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			const tick = 4 * time.Millisecond
			now := func() time.Time { return start.Add(time.Since(began).Truncate(tick)) }
			round := func(at time.Time) time.Time {
				if c.round > 0 {
					return at.Truncate(c.round)
				}
				return at
			}
			changed, scans := round(start.Add(c.changed)), 0
			s := &Store{local: true, hides: true}
			s.stamps = func(*directory) (time.Time, time.Time, error) { return changed, now(), nil }
			s.scan = func(context.Context, *directory, files.Wanted) ([]string, error) {
				if c.changes[scans] >= 0 {
					changed = round(now())
				}
				scans++
				return []string{string(rune('0' + scans - 1))}, nil
			}
			got, err := s.names(t.Context(), inRoot(t), nil)
			if c.want == "fails" {
				assert.Is(t, err, store.ErrListing, name)
				return
			}
			assert.OK(t, err)
			assert.Equal(t, strings.Join(got, ""), c.want, name)
			waited := time.Since(began)
			assert.That(t, waited >= c.waits && waited < c.waits+2*time.Millisecond, "%s: waited %v", name, waited)
		})
	}
}

// TestQuietNamesFails: a directory that is gone has no names. Any other failure to read its times is an error at once.
// If the directory is changed by each of many writers, the listing gives up after seconds.
func TestQuietNamesFails(t *testing.T) {
	for name, c := range map[string]struct {
		errs []error // of the looks at the times; the last one counts for all further looks
		want error
		took time.Duration
	}{
		"gone":       {[]error{fs.ErrNotExist}, nil, 0},
		"gone later": {[]error{nil, fs.ErrNotExist}, nil, 0},
		"fails":      {[]error{fs.ErrInvalid}, fs.ErrInvalid, 0},
		"fails once": {[]error{nil, fs.ErrInvalid, nil}, fs.ErrInvalid, 0},
		"changed":    {[]error{nil}, store.ErrListing, (maxQuiet - 11) * time.Millisecond},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, looks := time.Now(), 0
			s := &Store{local: true, hides: true}
			s.stamps = func(*directory) (changed, now time.Time, err error) {
				err = c.errs[min(looks, len(c.errs)-1)]
				looks++
				return began.Add(-time.Duration(looks) * time.Hour), began, err
			}
			s.scan = func(context.Context, *directory, files.Wanted) ([]string, error) { return []string{"a"}, nil }
			names, err := s.names(t.Context(), inRoot(t), nil)
			assert.Is(t, err, c.want, name)
			assert.Equal(t, len(names), 0, name)
			assert.Equal(t, time.Since(began), c.took, name)
		})
	}
}
