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
	"github.com/repolock/repolock/internal/audit"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/refresh"
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

func foundAt(place string, locks ...replock.Info) (all []found) {
	for _, l := range locks {
		all = append(all, found{Broken: &replock.Broken{Info: l}, place: place})
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
		screens(width, func(what, screen string) {
			fmt.Fprintf(&b, "--- %s, %d columns\n%s\n", what, width, strings.TrimSuffix(screen, "\n"))
			for line := range strings.Lines(screen) {
				line = strings.TrimSuffix(line, "\n")
				assert.That(t, columnsIn(line) <= width, "%s, %d columns: %q is wider", what, width, line)
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

// screens calls show with each text that is shown on a terminal of some width.
func screens(width int, show func(name, screen string)) {
	locks := someLocks()
	refused := func(place session.Place, waited time.Duration, holders ...replock.Info) string {
		out := newJSONError(&reporter{}, session.HeldError{HeldError: &replock.HeldError{Mode: replock.Exclusive, Holders: holders, Waited: waited}, Place: place, ExitCode: fault.ExitHeld})
		return hanging("repolock: error: "+out.words(false), width) + "\n" + hanging("repolock: hint: "+out.Suggestion, width)
	}
	repo := session.Place{Repo: "s3://backups/web"}
	unanswered := &store.Error{Op: "put", Key: locks[1].Keys[0], Err: errors.New("s3.example.org answers 503")}
	waits := func(e replock.Event, what string) string {
		w := &reporter{waiting: waiting{what: what, last: e}} // its clock begins with the wait
		return cut(w.liveLine(2*time.Second), width-1)
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
	show("status", lockTable(foundAt("", locks...), width))
	show("status, a repository and another system", lockTable(append(foundAt("s3://backups/web", locks[1]), foundAt("redis://127.0.0.1:6379/0?key=nightly", replock.Info{
		Mode: replock.Exclusive, Keys: []string{"redis://127.0.0.1:6379/0?key=nightly"}, Verdict: replock.Live,
	})...), width))
	show("status, no locks", lockTable(nil, width)+folded(looked([]placed{{Place: repo}, {Place: session.Place{Repo: "/srv/" + strings.Repeat("deep/", 20) + "repo", Name: "photos"}}}, false), width))
	early := aLock(replock.Shared, "backup", "web1 (pid 782)", "root", "7bec0cc37371631e1fc2a328529b5d22", -3*time.Hour, -3*time.Hour)
	show("status, dated ahead", lockTable(foundAt("", early), width))
	show("refusal, dated ahead", refused(repo, 0, early))
	show("refusal", refused(repo, 0, locks[1]))
	show("refusal, several", refused(repo, 0, locks...))
	show("refusal, after a wait", refused(session.Place{Repo: "s3://backups/web", Name: "photos"}, 15*time.Minute, locks[0]))
	show("refusal, a dead holder", refused(repo, 0, locks[3]))
	show("refusal, unreadable", refused(repo, 0, locks[len(locks)-1]))
	show("acquiring", waits(replock.Event{}, session.Acquiring([]session.Place{{Repo: "s3://backups/web?endpoint=https://s3.example.org&region=us-east-1"}})))
	show("retrying", waits(replock.Event{Kind: replock.EventRetrying, Err: unanswered, Left: 12 * time.Second}, ""))
	show("waiting", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks[1:2], Waited: time.Minute}, ""))
	show("waiting, several", waits(replock.Event{Kind: replock.EventWaiting, Holders: locks, Waited: time.Minute}, ""))
	show("watching", waits(replock.Event{Kind: replock.EventWatching, Holders: locks[4:5], Waited: time.Minute}, ""))
	begin := time.Date(2026, 3, 7, 2, 0, 0, 0, time.UTC)
	span := &audit.Span{Mode: "exclusive", Operation: "nightly-postgres-basebackup", Who: "db-primary-17.eu-central.example.org", Asked: begin, Held: begin.Add(90 * time.Minute)}
	show("history", historyTable(audit.History{Spans: []*audit.Span{span}, Removals: []audit.Removal{{At: begin, Who: span.Who, What: "broke the lock of", Of: span.Who}}}, width))
	show("repos", jsonRepos{
		File: "/etc/repolock/" + strings.Repeat("deep/", 12) + "config.toml", Default: "web",
		Repositories: []jsonRepo{{"web", "s3://backups/web?endpoint=https://s3.example.org&region=us-east-1&conditions=kept", "repository"}},
	}.words(width))
	show("doctor", reportText(report, "s3://bucket/backups", "", width))
}

// TestRefreshFailed: the line about a failed refresh names the repository if the error names no server.
func TestRefreshFailed(t *testing.T) {
	r, out := onTerminal(noTerminal)
	r.Repo = "s3://backups/web"
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
		assert.Equal(t, columnsIn(text), n, text)
	}
	assert.Equal(t, cut("備份主機", 6), "備份…", "cut to")
}

// TestPipeIsNotCut: a table in a pipe or a file has every column whole, with short ids. COLUMNS bounds it.
func TestPipeIsNotCut(t *testing.T) {
	reader, writer, err := os.Pipe()
	assert.OK(t, err)
	defer reader.Close()
	defer writer.Close()
	locks := foundAt("", someLocks()...)
	t.Setenv("COLUMNS", "")
	whole := lockTable(locks, columnsOf(writer))
	for _, want := range []string{"LAST SEEN  ID\n", "db-primary-17.eu-central.example.org (pid 1048576, backup-operator)", " 7bec0cc3\n"} {
		assert.That(t, strings.Contains(whole, want), "no %q in\n%s", want, whole)
	}
	assert.That(t, !strings.Contains(whole, "…") && !strings.Contains(whole, "EXPIRES"), "cut, or with the columns of --wide:\n%s", whole)
	t.Setenv("COLUMNS", "80")
	assert.That(t, lockTable(locks, columnsOf(writer)) == lockTable(locks, 80), "COLUMNS doesn't bound it")
}

// TestQuestionFits: the question of break-lock fits a narrow terminal, and counts the locks.
func TestQuestionFits(t *testing.T) {
	for n, want := range map[int]string{1: "Delete this lock? [y/N] ", 1234: "Delete these 1234 locks? [y/N] "} {
		asked := question(n)
		assert.That(t, strings.HasSuffix(asked, "\n"+want), "%d: %q", n, asked)
		for line := range strings.Lines(asked) {
			assert.That(t, columnsIn(strings.TrimSuffix(line, "\n")) <= narrowest, "%q is wide", line)
		}
	}
}

// onTerminal returns a reporter on a terminal, by the clock of a synctest bubble, and what it writes.
func onTerminal(kind terminal) (*reporter, *said) {
	out, began := &said{}, time.Now()
	return &reporter{stderr: out, terminal: func() terminal { return kind }, elapsed: func() time.Duration { return time.Since(began) }}, out
}

// TestNoSecondWithoutAWord: on a terminal a live line appears a second after a wait has begun, says
// what repolock waits for or which request has failed, is drawn each second, and goes with the wait. Work on many
// stale locks is shown at once. A wait that ends at once shows nothing, and a retry while the command runs doesn't
// either, nor does anything with --quiet or --json.
func TestNoSecondWithoutAWord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(erasingTerminal)
		shows := out.shows(t)
		retrying := replock.Event{Kind: replock.EventRetrying, Err: &store.Error{Op: "list", Key: "k", Err: errors.New("refused")}, Left: 3 * time.Second}
		w.BeginWait("acquiring the lock: repository x")
		time.Sleep(900 * time.Millisecond)
		shows("")
		time.Sleep(100 * time.Millisecond)
		shows("acquiring the lock, 1s: repository x")
		time.Sleep(time.Second)
		shows("acquiring the lock, 2s: repository x")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("retrying for 2s at most: refused (list)")
		time.Sleep(time.Second)
		shows("retrying for 1s at most: refused (list)")
		time.Sleep(time.Second) // the request was given up, and nothing has come since
		shows("acquiring the lock, 5s: repository x")
		w.Event(replock.Event{Kind: replock.EventWaiting, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		time.Sleep(time.Second)
		shows("waiting 1s: held by backup on web1 (pid 1)")
		w.Interrupted()
		shows("interrupted: deleting the lock that might have been written")
		w.Event(retrying)
		time.Sleep(time.Second)
		shows("interrupted, 1s: deleting the lock that might have been written")
		w.EndWait()
		synctest.Wait()
		assert.Equal(t, out.take(), erase, "at the end")

		w.Event(replock.Event{Kind: replock.EventReading})
		shows("reading many locks, which might be stale")
		w.Event(replock.Event{Kind: replock.EventReading, Done: 700})
		time.Sleep(time.Second)
		shows("reading many locks, which might be stale: 700 done")
		w.Event(replock.Event{Kind: replock.EventReaping, Done: 2300, Total: 10_000})
		time.Sleep(time.Second)
		shows("removing 10000 stale locks: 2300 done")
		w.EndWait()
		assert.Equal(t, out.take(), erase, "at the end of the work")

		w.Event(retrying)
		w.BeginWait("releasing the lock")
		w.EndWait()
		time.Sleep(time.Minute)
		shows("")

		for _, w.global = range []global{{Quiet: true}, {JSON: true}} {
			w.step("doctor: list after write")
			time.Sleep(time.Minute)
			w.EndWait()
			shows("")
		}
	})
}

// TestNoSecondWithoutALine: on a terminal that can't erase a line, each state is said in a whole line,
// once: a second after the wait has begun what repolock waits for, then a retry with its cause, and
// an interrupt.
func TestNoSecondWithoutALine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(dumbTerminal)
		says := func(want string) {
			t.Helper()
			time.Sleep(time.Second)
			synctest.Wait()
			said := out.take()
			assert.That(t, said == want, "said: %q, want %q", said, want)
		}
		retrying := replock.Event{Kind: replock.EventRetrying, Err: errors.New("refused"), Left: 3 * time.Second}
		w.BeginWait("acquiring the lock: repository x")
		says("repolock: acquiring the lock: repository x\n")
		says("")
		w.Event(retrying)
		says("repolock: retrying for 2s at most: refused\n")
		w.Event(retrying)
		says("")
		time.Sleep(5 * time.Second)
		says("")
		waiting := replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}}
		w.Event(waiting)
		says("repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
		says("")
		w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web2 (pid 9)", Operation: "prune", State: replock.StateWaiting, Keys: []string{"k"}}}})
		says("repolock: waiting for the shared lock, reserved for prune on web2 (pid 9), waiting\n")
		says("")
		w.Interrupted()
		says("repolock: interrupted: deleting the lock that might have been written\n")
		w.EndWait()
		says("")
		w.Quiet = true
		w.BeginWait("acquiring the lock: repository x")
		says("")
		w.EndWait()

		w, out = onTerminal(noTerminal)
		for range 2 {
			w.Event(waiting)
		}
		says("repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
	})
}

// TestNoSilenceInAPipe: in a pipe or a file a wait of 2 s without an answer is said, once, and then the cause of a
// retry. A wait that ends sooner says nothing.
func TestNoSilenceInAPipe(t *testing.T) {
	defer func(was time.Duration) { patience = was }(patience)
	patience = 2 * time.Second
	synctest.Test(t, func(t *testing.T) {
		w, out := onTerminal(noTerminal)
		says := func(after time.Duration, want string) {
			t.Helper()
			time.Sleep(after)
			synctest.Wait()
			assert.Equal(t, out.take(), want)
		}
		w.BeginWait("acquiring the lock: repository x")
		says(1900*time.Millisecond, "")
		w.EndWait()
		w.BeginWait("acquiring the lock: repository x")
		says(1900*time.Millisecond, "")
		says(200*time.Millisecond, "repolock: acquiring the lock: repository x\n")
		says(time.Minute, "")
		w.Event(replock.Event{Kind: replock.EventRetrying, Err: errors.New("refused"), Left: 3 * time.Second})
		says(2*time.Second, "repolock: retrying for 3s at most: refused\n")
		w.Event(replock.Event{Kind: replock.EventWaiting, Mode: replock.Shared, Holders: []replock.Info{{Holder: "web1 (pid 1)", Operation: "backup", Keys: []string{"k"}}}})
		says(time.Minute, "repolock: waiting for the shared lock, held by backup on web1 (pid 1)\n")
		w.EndWait()
		for _, w.global = range []global{{Quiet: true}, {JSON: true}} {
			w.BeginWait("acquiring the lock: repository x")
			says(time.Minute, "")
			w.EndWait()
		}
	})
}

// said is the output of a process or a reporter. It can be read while it is written.
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

// take returns the text, and forgets it.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
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

// shows returns a function that checks the last line that a terminal shows since it was checked.
func (s *said) shows(t *testing.T) func(want string) {
	return func(want string) {
		t.Helper()
		synctest.Wait()
		said := s.take()
		last := said[strings.LastIndex(strings.TrimSuffix(said, "\r"), "\r")+1:]
		assert.That(t, strings.TrimSuffix(last, "\r") == want, "shown: %q, want %q", said, want)
	}
}
