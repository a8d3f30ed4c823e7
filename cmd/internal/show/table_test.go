package show

import (
	"errors"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// TestRefreshFailed: the line about a failed refresh names the repository if the error names no server.
func TestRefreshFailed(t *testing.T) {
	r, out := onTerminal(NoTerminal)
	r.Place.Repo = "s3://backups/web"
	r.Event(replock.Event{Kind: replock.EventRefreshFailed, Left: 13 * time.Minute, Err: errors.New("read-only file system")})
	assert.Equal(t, out.take(), "repolock: refreshing the lock has failed for 30s (it is lost in 13m): read-only file system\n")
	r.Event(replock.Event{Kind: replock.EventRefreshFailed, Failures: 1, Left: 40 * time.Second, Err: refresh.ErrTimeout})
	r.Event(replock.Event{Kind: replock.EventRefreshFailed, Failures: 3, Err: errors.New("h:9: refused")})
	assert.Equal(t, out.take(), "repolock: refreshing the lock failed (1 of 3; it is lost in 40s): s3://backups/web: no answer in time\n"+
		"repolock: refreshing the lock failed (3 of 3; it is lost within 1s): h:9: refused\n")
}

// TestShortID: a short id is the beginning of no other, and shows no control character.
func TestShortID(t *testing.T) {
	all := []string{"7bec0cc37371631e", "7bec0cc37372aaaa", "0a1b2c3d4e5f6071", "", "\x1b[2J4567890"}
	for id, want := range map[string]string{all[0]: "7bec0cc37371", all[1]: "7bec0cc37372", all[2]: "0a1b2c3d", "": "-", "short": "short", all[4]: `\x1b[2J4567`, "\x1b[2J": `\x1b[2J`} {
		assert.Equal(t, shortIDs(all, 8)(id), want, id)
	}
}

// TestWideCharacters: a character that takes two columns of a terminal counts as two, and a mark on
// another one as none.
func TestWideCharacters(t *testing.T) {
	for text, n := range map[string]int{"": 0, "web1": 4, "…": 1, "é": 1, "e\u0301": 1, "備份": 4, "Ａ": 2, "🙂": 2} {
		assert.Equal(t, ColumnsIn(text), n, text)
	}
	assert.Equal(t, Cut("備份主機", 6), "備份…", "cut to")
}

// TestHeldFor: the time that a lock is held counts from the holder's own dates, and isn't negative, whatever year is in
// them.
func TestHeldFor(t *testing.T) {
	now := time.Now()
	far := time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC)
	for name, c := range map[string]struct {
		info     replock.Info
		min, max time.Duration
		known    bool
	}{
		"no date":              {replock.Info{}, 0, 0, false},
		"no expiry":            {replock.Info{Acquired: now.Add(-time.Hour)}, time.Hour, time.Hour + time.Minute, true},
		"no expiry, far ahead": {replock.Info{Acquired: far}, 0, 0, true},
		"refreshed":            {replock.Info{Acquired: now.Add(-time.Hour), Expires: now, TTL: time.Minute, Age: time.Second}, 59*time.Minute + time.Second, 59*time.Minute + time.Second, true},
		"acquired long ago":    {replock.Info{Acquired: time.Time{}.Add(1), Expires: now, TTL: time.Minute, Age: time.Hour}, 24 * time.Hour, 1 << 62, true},
		"acquired in future":   {replock.Info{Acquired: far, Expires: now, TTL: time.Minute, Age: time.Hour}, time.Hour, time.Hour, true},
		"all dates in future":  {replock.Info{Acquired: far, Expires: far, TTL: time.Minute, Age: -time.Hour}, 0, 0, false},
		"acquired now":         {replock.Info{Acquired: now, Expires: now.Add(time.Minute), TTL: time.Minute}, 0, 0, true},
	} {
		held, known := HeldFor(c.info)
		assert.That(t, known == c.known && held >= c.min && held <= c.max, "%s: held for %v, known: %v", name, held, known)
	}
}
