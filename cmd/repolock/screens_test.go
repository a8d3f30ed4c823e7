package main

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// aLock returns a lock that was acquired and seen so long ago.
func aLock(mode replock.Mode, operation, holder, user, id string, held, seen time.Duration) replock.Info {
	acquired := time.Date(2026, 3, 7, 1, 0, 0, 0, time.UTC)
	refreshed := acquired.Add(held - seen)
	return replock.Info{
		Mode: mode, Operation: operation, Holder: holder, User: user, ID: id, Keys: []string{"index/lock.shared/20260307T010000.000000000Z-" + id},
		Acquired: acquired, Expires: refreshed.Add(time.Minute), TTL: time.Minute, ModTime: refreshed, Age: seen, Left: time.Minute - seen,
		StoreClock: true, Verdict: replock.Live,
	}
}

// someLocks are locks of every verdict.
func someLocks() (all []replock.Info) {
	add := func(i replock.Info, change func(*replock.Info)) {
		if change != nil {
			change(&i)
		}
		all = append(all, i)
	}
	add(aLock(replock.Exclusive, "prune", "web2 (pid 99)", "root", "0a1b2c3d4e5f60718293a4b5c6d7e8f9", 134*time.Second, 4*time.Second),
		func(i *replock.Info) { i.State = replock.StateWaiting })
	add(aLock(replock.Shared, "backup", "web1 (pid 782)", "root", "7bec0cc37371631e1fc2a328529b5d22", 134*time.Minute, 3*time.Second), nil)
	add(aLock(replock.Shared, "nightly-postgres-basebackup", "db-primary-17.eu-central.example.org (pid 1048576)", "backup-operator", "7bec0cc4737163aaaaaaaaaaaaaaaaaa", 76*time.Hour, 29*time.Second), nil)
	add(aLock(replock.Shared, "restore", "web3 (pid 4)", "ada", "11111111111111111111111111111111", 9*time.Minute, 50*time.Second),
		func(i *replock.Info) { i.ProcessGone = true })
	add(aLock(replock.Shared, "backup", "nas (pid 5)", "", "22222222222222222222222222222222", 2*time.Hour, 70*time.Second),
		func(i *replock.Info) {
			i.Verdict, i.Why = replock.Doubtful, "this machine's clock says that it has expired, and no other clock confirms that"
		})
	add(aLock(replock.Shared, "备份数据库每日完整", "主机服务器一号 (pid 7)", "管理员", "33333333333333333333333333333333", time.Hour, 9*time.Second), nil)
	add(aLock(replock.Shared, "backup", "laptop (pid 1)", "", "", 48*time.Hour, 47*time.Hour), func(i *replock.Info) { i.Verdict = replock.Stale })
	add(replock.Info{Mode: replock.Shared, Keys: []string{"index/lock.shared/" + strings.Repeat("x", 90)}, ModTime: time.Unix(1, 0), Age: 3 * time.Minute, Verdict: replock.Unreadable}, func(i *replock.Info) {
		i.Why = "body is not a lock's JSON: invalid character 'o' in literal null (expecting 'u')"
	})
	return all
}

// TestScreens: what status, a refusal, a wait and doctor show fits terminals of 60, 80 and 120
// columns: lines are broken between words, columns are left out, and only an ellipsis cuts.
// testdata/screens.txt shows them all; -update writes it.
func TestScreens(t *testing.T) {
	const golden = "testdata/screens.txt"
	var b strings.Builder
	for _, width := range []int{60, 80, 120} {
		show := func(what, screen string) {
			fmt.Fprintf(&b, "--- %s, %d columns\n%s\n", what, width, strings.TrimSuffix(screen, "\n"))
			for line := range strings.Lines(screen) {
				if line = strings.TrimSuffix(line, "\n"); columnsIn(line) > width {
					t.Errorf("%s, %d columns: %q is wider", what, width, line)
				}
			}
		}
		for name, screen := range screens(width) {
			show(name, screen)
		}
	}
	if *update {
		if err := os.WriteFile(golden, []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil || b.String() != string(want) {
		t.Errorf("%v: not as in %s; if it should be so, run it with -update:\n%s", err, golden, b.String())
	}
}

// screens yields what is shown on a terminal of some width.
func screens(width int) func(func(name, screen string) bool) {
	locks := someLocks()
	at := func(place string, locks ...replock.Info) (all []found[replock.Info]) {
		for _, l := range locks {
			all = append(all, found[replock.Info]{lock: l, place: place})
		}
		return all
	}
	refused := func(place session.Place, waited time.Duration, holders ...replock.Info) string {
		out := newJSONError(&reporter{}, session.HeldError{HeldError: &replock.HeldError{Mode: replock.Exclusive, Holders: holders, Waited: waited}, Place: place, ExitCode: exitHeld})
		return hanging("repolock: error: "+out.words(false), width) + "\n" + hanging("repolock: hint: "+out.Suggestion, width)
	}
	repo := session.Place{Repo: "s3://backups/web"}
	unanswered := &store.Error{Op: "put", Key: locks[1].Keys[0], Err: errors.New("s3.example.org answers 503")}
	waits := func(e replock.Event, what string) string {
		w := &console{what: what, last: e} // its clock begins with the wait
		return cut(w.line(2*time.Second), width-1)
	}
	report := doctor.Report{
		Store: "s3", Server: "Example 1.2",
		Checks: []doctor.Check{
			{Name: doctor.Reachable, Result: doctor.OK, Detail: "HTTP 200"},
			{Name: doctor.IfNoneMatchRace, Result: doctor.Fail, Detail: "2 of 8 puts with If-None-Match, sent at once to a key that wasn't there, were both taken, in 3 of 20 rounds"},
			{Name: doctor.ClockOffset, Result: doctor.Warn, Detail: "this machine is 12s ahead of the store, give or take 40ms"},
		},
		Latency: []doctor.Latency{{Request: "list", N: 208, MedianMS: 1.9, P99MS: 21.4}, {Request: "put if-none-match", N: 163, MedianMS: 1.2, P99MS: 1.9}},
		Plan:    &doctor.Plan{Says: []string{"a crashed holder's lock is passed as soon as it has expired by the store's clock and by this machine's, and no wrong clock lets a second holder in"}},
		Verdict: doctor.Verdict{Fitness: doctor.Fit, Summary: "this store is fit to hold locks"},
	}
	return func(yield func(name, screen string) bool) {
		_ = yield("status", lockTable(at("", locks...), width)) &&
			yield("status, a repository and another system", lockTable(append(at("s3://backups/web", locks[1]), at("redis://127.0.0.1:6379/0?key=nightly", replock.Info{
				Mode: replock.Exclusive, Keys: []string{"redis://127.0.0.1:6379/0?key=nightly"}, Verdict: replock.Live,
			})...), width)) &&
			yield("status, no locks", lockTable(nil, width)+folded(looked([]placed{{Place: repo}, {Place: session.Place{Repo: "/srv/" + strings.Repeat("deep/", 20) + "repo", Name: "photos"}}}), width)) &&
			yield("refusal", refused(repo, 0, locks[1])) &&
			yield("refusal, several", refused(repo, 0, locks...)) &&
			yield("refusal, after a wait", refused(session.Place{Repo: "s3://backups/web", Name: "photos"}, 15*time.Minute, locks[0])) &&
			yield("refusal, a dead holder", refused(repo, 0, locks[3])) &&
			yield("refusal, unreadable", refused(repo, 0, locks[len(locks)-1])) &&
			yield("acquiring", waits(replock.Event{}, session.Acquiring([]session.Place{{Repo: "s3://backups/web?endpoint=https://s3.example.org&region=us-east-1"}}))) &&
			yield("retrying", waits(replock.Event{Kind: replock.EventRetrying, Err: unanswered, Left: 12 * time.Second}, "")) &&
			yield("waiting", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks[1:2], Waited: time.Minute}, "")) &&
			yield("waiting, several", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks, Waited: time.Minute}, "")) &&
			yield("watching", waits(replock.Event{Kind: replock.EventWatching, Holders: locks[4:5], Waited: time.Minute}, "")) &&
			yield("doctor", reportText(report, "s3://bucket/backups", "", width))
	}
}

// TestShortID: a short id is the beginning of no other, and shows no control character.
func TestShortID(t *testing.T) {
	all := []string{"7bec0cc37371631e", "7bec0cc37372aaaa", "0a1b2c3d4e5f6071", "", "\x1b[2J4567890"}
	for id, want := range map[string]string{all[0]: "7bec0cc37371", all[1]: "7bec0cc37372", all[2]: "0a1b2c3d", "": "-", "short": "short", all[4]: `\x1b[2J4567`, "\x1b[2J": `\x1b[2J`} {
		if got := shortID(id, all); got != want {
			t.Errorf("%q is %q, want %q", id, got, want)
		}
	}
}
