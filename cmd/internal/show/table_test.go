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
	r.Event(replock.Event{Kind: replock.EventRefreshFailed, Failures: 1, Left: 40 * time.Second, Err: refresh.ErrTimeout})
	r.Event(replock.Event{Kind: replock.EventRefreshFailed, Failures: 3, Err: errors.New("h:9: refused")})
	assert.Equal(t, out.take(), "repolock: refreshing the lock failed (1 of 3; it is lost in 40s): s3://backups/web: no answer in time\n"+
		"repolock: refreshing the lock failed (3 of 3; it is lost within 1s): h:9: refused\n")
}

// TestShortID: a short id is the beginning of no other, and shows no control character.
func TestShortID(t *testing.T) {
	all := []string{"7bec0cc37371631e", "7bec0cc37372aaaa", "0a1b2c3d4e5f6071", "", "\x1b[2J4567890"}
	for id, want := range map[string]string{all[0]: "7bec0cc37371", all[1]: "7bec0cc37372", all[2]: "0a1b2c3d", "": "-", "short": "short", all[4]: `\x1b[2J4567`, "\x1b[2J": `\x1b[2J`} {
		assert.Equal(t, shortIDs(all)(id), want, id)
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
