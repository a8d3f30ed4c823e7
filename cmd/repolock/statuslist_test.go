package main

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// TestLongStatus: status prints many locks in parts. In JSON they are one document, the same as of one part. In text the
// columns are named once, each lock has its line, and waiters come last.
func TestLongStatus(t *testing.T) {
	rest := newJSONStatus(session.Place{Repo: "/srv/repo"}, nil, []stray{{Key: "index/lock.shared/x"}})
	for _, n := range []int{0, 1, maxListed, maxListed + 1, 2*maxListed + 1, 3 * maxListed} {
		var all []show.Lock
		for i := range n {
			info := replock.Info{Mode: replock.Shared, ID: fmt.Sprintf("%032x", uint64(i)*0x9e3779b97f4a7c15), Keys: []string{fmt.Sprint("index/lock.shared/", i)},
				Holder: "web" + strings.Repeat("1", i/100) + " (pid 782)", TTL: time.Minute, Verdict: replock.Live, State: replock.StateHeld}
			if i%100 == 3 {
				info.State = replock.StateWaiting
			}
			all = append(all, show.Lock{Broken: &replock.Broken{Info: info}})
		}
		list := func(json bool) string {
			var out bytes.Buffer
			r := &show.Reporter{Options: show.Options{JSON: json}, Stdout: &out, Stderr: &out}
			s := statusList{r: r, table: show.LockList{Width: 1 << 30}}
			for _, l := range all {
				s.add(l)
			}
			assert.OK(t, s.end(rest, "looked in /srv/repo\n"))
			return out.String()
		}
		whole := rest
		for _, l := range all {
			whole.Locks = append(whole.Locks, show.NewJSONLock(l))
		}
		want, err := text.MarshalIndent(whole, "", "  ")
		assert.OK(t, err)
		assert.That(t, list(true) == string(want)+"\n", "JSON of %d locks differs", n)

		words := list(false)
		if n == 0 {
			assert.Equal(t, words, "no locks\nlooked in /srv/repo\n", "no locks")
			continue
		}
		lines := strings.Split(strings.TrimSuffix(words, "\n"), "\n")
		assert.Equal(t, len(lines), n+2, "lines")
		assert.Equal(t, strings.Count(words, "VERDICT"), 1, "lines with the columns' names")
		waiting := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "waiting") })
		assert.That(t, waiting < 0 || !strings.Contains(strings.Join(lines[waiting:], "\n"), "\nlive"), "a lock of %d is below a waiter", n)
		if n <= maxListed {
			assert.Equal(t, words, show.LockTable(all, 1<<30)+"looked in /srv/repo\n", "text")
		}
	}
}
