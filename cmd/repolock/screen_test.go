package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// aLock returns a lock that was acquired held ago and last seen seen ago.
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
		i.Why = "damaged: not JSON"
	})
	return all
}

func foundAt(place string, locks ...replock.Info) (all []show.Lock) {
	for _, l := range locks {
		all = append(all, show.Lock{Broken: &replock.Broken{Info: l}, Place: place})
	}
	return all
}

// TestScreens: what status, a refusal, a wait and doctor show fits terminals of 60, 80 and 120
// columns: lines are broken between words, columns are left out, and only an ellipsis cuts.
// testdata/screens.txt shows them all; -update writes it.
func TestScreens(t *testing.T) {
	const golden = "testdata/screens.txt"
	var b strings.Builder
	for _, width := range []int{60, 80, 120} {
		screens(t, width, func(what, screen string) {
			fmt.Fprintf(&b, "--- %s, %d columns\n%s\n", what, width, strings.TrimSuffix(screen, "\n"))
			for line := range strings.Lines(screen) {
				line = strings.TrimSuffix(line, "\n")
				assert.That(t, show.ColumnsIn(line) <= width, "%s, %d columns: %q is wider", what, width, line)
			}
		})
	}
	if *update {
		assert.OK(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	}
	want, err := os.ReadFile(golden)
	assert.That(t, err == nil && b.String() == string(want),
		"%v: not as in %s; if it should be so, run it with -update:\n%s", err, golden, b.String())
}

// screens calls add with each text that is shown on a terminal of some width.
func screens(t *testing.T, width int, add func(name, screen string)) {
	locks := someLocks()
	refused := func(place session.Place, waited time.Duration, holders ...replock.Info) string {
		out := show.NewJSONError(&show.Reporter{}, session.HeldError{HeldError: &replock.HeldError{Mode: replock.Exclusive, Holders: holders, Waited: waited}, Place: place, ExitCode: fault.ExitHeld})
		return show.Hanging("repolock: error: "+out.Words(false), width) + "\n" + show.Hanging("repolock: hint: "+out.Suggestion, width)
	}
	repo := session.Place{Repo: "s3://backups/web"}
	unanswered := &store.Error{Op: "put", Key: locks[1].Keys[0], Err: errors.New("s3.example.org answers 503")}
	waits := func(e replock.Event, doing, about string) (line string) {
		synctest.Test(t, func(*testing.T) {
			var out said
			began := time.Now()
			w := &show.Reporter{Stderr: &out, Terminal: func() show.Terminal { return show.ErasingTerminal }, Elapsed: func() time.Duration { return time.Since(began) }}
			w.BeginWait(doing, about)
			if e.Kind != "" {
				w.Event(e)
			}
			time.Sleep(2*time.Second + time.Millisecond)
			synctest.Wait()
			drawn := strings.Split(strings.TrimSuffix(out.String(), "\r"), show.Erase)
			w.EndWait()
			line = show.Cut(drawn[len(drawn)-1], width-1)
		})
		return line
	}
	report := doctor.Report{
		Store: "s3", Server: "Example 1.2",
		Checks: []doctor.Check{
			{Name: doctor.Reachable, Result: doctor.OK, Detail: "HTTP 200"},
			{Name: doctor.IfNoneMatchRace, Result: doctor.Fail, Detail: "2 of 8 puts with If-None-Match, sent at once to a key that wasn't there, were both taken, in 3 of 20 rounds"},
			{Name: doctor.ClockOffset, Result: doctor.Warn, Detail: "this machine is 12s ahead of the store, give or take 40ms"},
		},
		Latency: []doctor.Latency{{Request: "list", N: 208, MedianMS: 1.9, P99MS: 21.4}, {Request: "put if-none-match", N: 163, MedianMS: 1.2, P99MS: 1.9}},
		Plan:    &doctor.Plan{Says: []string{"a crashed holder's lock is removed as soon as both the store's clock and this machine's show that it has expired, and no wrong clock causes a second holder"}},
		Verdict: doctor.Verdict{Fitness: doctor.Fit, Summary: "this store is fit to hold locks"},
	}
	add("status", show.LockTable(foundAt("", locks...), width))
	add("status, a repository and another system", show.LockTable(append(foundAt("s3://backups/web", locks[1]), foundAt("redis://127.0.0.1:6379/0?key=nightly", replock.Info{
		Mode: replock.Exclusive, Keys: []string{"redis://127.0.0.1:6379/0?key=nightly"}, Verdict: replock.Live,
	})...), width))
	add("status, no locks", show.LockTable(nil, width)+show.Folded(looked([]placed{{Place: repo}, {Place: session.Place{Repo: "/srv/" + strings.Repeat("deep/", 20) + "repo", Name: "photos"}}}, false), width))
	early := aLock(replock.Shared, "backup", "web1 (pid 782)", "root", "7bec0cc37371631e1fc2a328529b5d22", -3*time.Hour, -3*time.Hour)
	add("status, dated ahead", show.LockTable(foundAt("", early), width))
	add("refusal, dated ahead", refused(repo, 0, early))
	add("refusal", refused(repo, 0, locks[1]))
	add("refusal, several", refused(repo, 0, locks...))
	add("refusal, after a wait", refused(session.Place{Repo: "s3://backups/web", Name: "photos"}, 15*time.Minute, locks[0]))
	add("refusal, a dead holder", refused(repo, 0, locks[3]))
	add("refusal, unreadable", refused(repo, 0, locks[len(locks)-1]))
	add("acquiring", waits(replock.Event{}, "acquiring the lock", session.Titles([]session.Place{{Repo: "s3://backups/web?endpoint=https://s3.example.org&region=us-east-1"}})))
	add("retrying", waits(replock.Event{Kind: replock.EventRetrying, Err: unanswered, Left: 12 * time.Second}, "", ""))
	add("waiting", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks[1:2], Waited: time.Minute}, "", ""))
	add("waiting, several", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks, Waited: time.Minute}, "", ""))
	add("watching", waits(replock.Event{Kind: replock.EventWatching, Holders: locks[4:5], Waited: time.Minute}, "", ""))
	begin := time.Date(2026, 3, 7, 2, 0, 0, 0, time.UTC)
	span := &audit.Span{Mode: "exclusive", Operation: "nightly-postgres-basebackup", Who: "db-primary-17.eu-central.example.org", Asked: begin, Held: begin.Add(90 * time.Minute)}
	add("history", historyTable(audit.History{Spans: []*audit.Span{span}, Removals: []audit.Removal{{At: begin, Who: span.Who, What: "broke the lock of", Of: span.Who}}}, width))
	add("repos", jsonRepos{
		File: "/etc/repolock/" + strings.Repeat("deep/", 12) + "config.toml", Default: "web",
		Repositories: []jsonRepo{{"web", "s3://backups/web?endpoint=https://s3.example.org&region=us-east-1&conditions=kept", "repository"}},
	}.words(width))
	add("doctor", reportText(report, "s3://bucket/backups", "", width))
}

// TestPipeIsNotCut: a table in a pipe or a file has every column whole, with short ids. COLUMNS bounds it.
func TestPipeIsNotCut(t *testing.T) {
	reader, writer, err := os.Pipe()
	assert.OK(t, err)
	defer reader.Close()
	defer writer.Close()
	locks := foundAt("", someLocks()...)
	t.Setenv("COLUMNS", "")
	whole := show.LockTable(locks, show.ColumnsOf(writer))
	for _, want := range []string{"LAST SEEN  ID\n", "db-primary-17.eu-central.example.org (pid 1048576, backup-operator)", " 7bec0cc3\n"} {
		assert.That(t, strings.Contains(whole, want), "no %q in\n%s", want, whole)
	}
	assert.That(t, !strings.Contains(whole, "…") && !strings.Contains(whole, "EXPIRES"), "cut, or with the columns of --wide:\n%s", whole)
	t.Setenv("COLUMNS", "80")
	assert.That(t, show.LockTable(locks, show.ColumnsOf(writer)) == show.LockTable(locks, 80), "COLUMNS doesn't bound it")
}

// TestQuestionFits: the question of break-lock fits a narrow terminal, and counts the locks.
func TestQuestionFits(t *testing.T) {
	for n, want := range map[int]string{1: "Delete this lock? [y/N] ", 1234: "Delete these 1234 locks? [y/N] "} {
		asked := question(n)
		assert.That(t, strings.HasSuffix(asked, "\n"+want), "%d: %q", n, asked)
		for line := range strings.Lines(asked) {
			assert.That(t, show.ColumnsIn(strings.TrimSuffix(line, "\n")) <= show.Narrowest, "%q is wide", line)
		}
	}
}

// said is the output of a process. It can be read while it is written.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(text []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(text)
}

func (s *said) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// TestJSONIsPlain: text that others wrote into a lock or a log reaches no terminal unescaped,
// and keeps its value in JSON.
func TestJSONIsPlain(t *testing.T) {
	dir := t.TempDir()
	const evil = "\u009b2J\u202egnp\x7f"
	body := `{"operation":"` + evil + `","holder":"` + evil + `","acquired_at":"2026-03-07T09:00:00Z","expires_at":"9999-12-31T23:59:59Z","metadata":{"` + evil + `":"x"}}`
	write(t, filepath.Join(dir, "repo", "index", "lock.shared", "x"), body)
	write(t, filepath.Join(dir, "log"), `{"event":"lock_acquired","timestamp":"2026-03-07T09:00:00Z","operation":"`+evil+`","mode":"`+evil+`"}`)
	t.Setenv("REPOLOCK_REPO", filepath.Join(dir, "repo"))
	audit := filepath.Join(dir, "audit")
	for _, args := range [][]string{
		{"status"}, {"history", filepath.Join(dir, "log")}, {"prune", "--audit", audit, "--", "touch", "RAN"}, {"break-lock", "--yes", "--audit", audit}, {"history", audit},
	} {
		_, stdout, stderr := call(append([]string{"--json"}, args...)...)
		text := stdout + stderr
		assert.That(t, !strings.ContainsFunc(strings.ReplaceAll(text, "\n", ""), func(r rune) bool { return !unicode.IsPrint(r) }),
			"%s: %q", args[0], text)
		var v any
		err := json.Unmarshal([]byte(text), &v)
		assert.That(t, err == nil && (len(args) != 1 || strings.Contains(fmt.Sprint(v), evil)), "%s: %v\n%s", args[0], err, text)
	}
	text, err := os.ReadFile(audit)
	assert.That(t, err == nil && bytes.Contains(text, []byte("lock_broken")) && !bytes.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }),
		"%v: %q", err, text)
}
