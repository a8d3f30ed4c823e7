//go:build unix

package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/store"
)

// screen is a terminal on which a command runs, and what it has shown.
type screen struct {
	t     *testing.T
	cmd   *exec.Cmd
	pty   *os.File
	shown string
}

// onScreen starts a repolock on a terminal, with these variables and ours.
func onScreen(t *testing.T, rows, columns uint16, env []string, args ...string) *screen {
	t.Helper()
	// At Ctrl-C the kernel first sends the signal, and then discards what the terminal hasn't shown yet. That can be the
	// answer to the signal.
	cmd := exec.Command("sh", append([]string{"-c", `stty noflsh && exec repolock "$@"`, "sh"}, args...)...)
	cmd.Env = append(os.Environ(), env...)
	terminal, err := pty.StartWithSize(cmd, &pty.Winsize{Rows: rows, Cols: columns})
	assert.OK(t, err)
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		terminal.Close()
	})
	return &screen{t: t, cmd: cmd, pty: terminal}
}

// read waits for more, and reports whether there can be still more.
func (s *screen) read() bool {
	buf := make([]byte, 1024)
	n, err := s.pty.Read(buf)
	s.shown += string(buf[:n])
	return err == nil
}

// until waits until a text is shown.
func (s *screen) until(text string) {
	s.t.Helper()
	for !strings.Contains(s.shown, text) {
		assert.Need(s.t, s.read(), "no %q: %q", text, s.shown)
	}
}

func (s *screen) types(text string) {
	s.t.Helper()
	_, err := s.pty.WriteString(text)
	assert.OK(s.t, err)
}

const ctrlC = "\x03"

// end waits until the command has ended, and returns how.
func (s *screen) end() syscall.WaitStatus {
	for s.read() {
	}
	_ = s.cmd.Wait()
	return s.cmd.ProcessState.Sys().(syscall.WaitStatus)
}

// TestBreakLockAsks: on a terminal break-lock lists the locks, and asks before it deletes them, and no others. With
// --json it prints one object when the answer is no. A place that didn't answer is an error, whatever the answer is.
func TestBreakLockAsks(t *testing.T) {
	for answer, deleted := range map[string]bool{"y": true, "yes": true, "n": false, "": false, "what": false} {
		repo := t.TempDir()
		lock := filepath.Join(repo, "index", "lock.shared", "x")
		write(t, lock, "\x1b[2J garbage")
		s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock")
		s.until("[y/N]")
		assert.That(t, strings.Contains(s.shown, "unreadable") && !strings.Contains(s.shown, "\x1b"), "shown: %q", s.shown)
		later := filepath.Join(repo, "index", "lock.shared", "later")
		write(t, later, "garbage")
		s.types(answer + "\n")
		want := map[bool]int{true: 0, false: fault.ExitAborted}[deleted]
		assert.Equal(t, s.end().ExitStatus(), want, answer)
		_, err := os.Stat(lock)
		assert.That(t, (err != nil) == deleted, "%q: deleted: %v", answer, err != nil)
		_, err = os.Stat(later)
		assert.That(t, err == nil, "%q: a lock that wasn't shown: %v", answer, err)
		if deleted {
			continue
		}
		var stdout, stderr bytes.Buffer
		cmd := exec.Command("repolock", "--json", "-r", repo, "break-lock")
		terminal, tty, err := pty.Open()
		assert.OK(t, err)
		_, err = terminal.WriteString(answer + "\n")
		assert.OK(t, err)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = tty, &stdout, &stderr
		code := exitOf(t, cmd.Run())
		terminal.Close()
		tty.Close()
		_, object, _ := strings.Cut(stderr.String(), "[y/N] ")
		assert.That(t, code == fault.ExitAborted && stdout.Len() == 0 && strings.HasPrefix(object, `{"error":"declined","message":"nothing was deleted","exit_code":1,`) && strings.Count(object, "\n") == 1,
			"exit code %d\n%s%s", code, stdout.String(), stderr.String())
	}
	repo := t.TempDir()
	write(t, filepath.Join(repo, "index", "lock.shared", "x"), "garbage")
	for _, answer := range []string{"n", "y"} {
		s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock", "--also", "redis://127.0.0.1:1?key=k")
		s.until("[y/N]")
		s.types(answer + "\n")
		status := s.end().ExitStatus()
		assert.That(t, status == fault.ExitUnavailable && strings.Contains(s.shown, "redis://127.0.0.1:1"), "%q: exit code %d: %s", answer, status, s.shown)
	}
	other := t.TempDir()
	later := filepath.Join(other, "index", "locks", "n", "lock.shared", "later")
	write(t, filepath.Join(repo, "index", "lock.shared", "x"), "garbage")
	s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock", "--also", "repo:"+other+"#n")
	s.until("[y/N]")
	write(t, later, "garbage")
	s.types("y\n")
	assert.Equal(t, s.end().ExitStatus(), 0, "two places")
	_, err := os.Stat(later)
	assert.That(t, err == nil, "a lock of a place that showed none: %v", err)
}

// TestLockInDoubt: a lock counts as held if only one clock says that it has expired, and an
// acquirer without --wait can't watch it for its whole ttl. The message says that a person can
// end it, at a terminal.
func TestLockInDoubt(t *testing.T) {
	repo := t.TempDir()
	lock := filepath.Join(repo, "index", "lock.intent", "x")
	write(t, lock, `{"operation":"prune","holder":"far","expires_at":"2100-01-01T00:00:00Z","id":"0123","ttl_seconds":86400}`)
	old := time.Now().Add(-48 * time.Hour)
	assert.OK(t, os.Chtimes(lock, old, old))
	for _, wait := range []string{"0s", "1s"} {
		code, _, stderr := call("-r", repo, "prune", "--wait", wait, "--", "true")
		for _, want := range []string{"prune on far, last seen ", "perhaps stale", "repolock -r " + repo + " break-lock --stale", "--wait 24h1m "} {
			assert.That(t, code == fault.ExitHeld && strings.Contains(stderr, want), "%d, without %q: %s", code, want, stderr)
		}
	}
	code, _, stderr := call("-r", repo, "break-lock", "--stale", "--yes")
	_, err := os.Stat(lock)
	removes := "this deletes it: repolock -r " + repo + " break-lock --yes --id 0123\n"
	assert.That(t, err == nil && code == 0 && strings.Contains(stderr, "left alone: prune on far, ") && strings.HasSuffix(stderr, removes), "%d, %v: %s", code, err, stderr)
	s := onScreen(t, 24, 80, nil, "-r", repo, "break-lock", "--stale")
	s.types("y\n")
	status := s.end()
	assert.That(t, status == 0 && strings.Contains(s.shown, "doubtful"), "%v: %s", status, s.shown)
	code, _, stderr = call("-r", repo, "prune", "--", "true")
	assert.That(t, code == 0, "after break-lock --stale: %d: %s", code, stderr)
}

// TestWaitingLine: the waiting line is overwritten in place, fits the terminal, and disappears
// when the wait ends. Ctrl-C ends the wait and removes the ticket.
func TestWaitingLine(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	holder := exec.Command("repolock", "-r", repo, "backup", "--ttl", "1h", "--", "sh", "-c", "echo up; exec sleep 100000")
	up, err := holder.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, holder.Start())
	defer func() {
		_ = holder.Process.Signal(os.Interrupt)
		_ = holder.Wait()
	}()
	_, err = up.Read(make([]byte, 3))
	assert.OK(t, err)

	s := onScreen(t, 24, 70, []string{"TERM=xterm"}, "-r", repo, "prune", "--wait", "forever", "--", "true")
	drawn := regexp.MustCompile(`waiting \S+ held by backup on `)
	for len(drawn.FindAllString(s.shown, -1)) < 4 && s.read() {
	}
	s.types(ctrlC)
	if status := s.end(); status.Signal() != syscall.SIGINT { // a shell that gets 130 ends its script as well
		t.Errorf("it ended with %v", status)
	}
	lines := strings.Split(s.shown, show.Erase)
	assert.That(t, len(lines) >= 4 && !strings.Contains(strings.Join(lines[:len(lines)-1], ""), "\n"), "shown: %q", s.shown)
	for _, line := range lines[:len(lines)-1] {
		line, _, _ = strings.Cut(line, "\r")
		n := len([]rune(line))
		assert.That(t, n <= 69, "%d columns: %q", n, line)
	}
	last := lines[len(lines)-1]
	assert.That(t, last == "repolock: error: interrupted; nothing was run\r\n", "the last that is shown: %q", last)
	entries, err := os.ReadDir(filepath.Join(repo, "index", "lock.intent"))
	assert.That(t, err != nil || len(entries) == 0, "left: %v", entries)
}

// TestWatch: status --watch redraws the locks in place, no wider or longer than the terminal, and a
// failure with its cause first. A terminal that can't erase a line gets no escape sequence.
func TestWatch(t *testing.T) {
	repo := t.TempDir()
	s := onScreen(t, 6, 60, []string{"TERM=dumb"}, "-r", repo, "status", "--watch", "--interval", "100ms")
	s.until("no locks")
	write(t, filepath.Join(repo, "index", "lock.shared", "a"), "garbage")
	s.until("unreadable")
	assert.That(t, !strings.Contains(s.shown, "\x1b"), "shown: %q", s.shown)
	assert.OK(t, os.RemoveAll(filepath.Join(repo, "index")))
	s = onScreen(t, 6, 60, []string{"TERM=xterm"}, "-r", repo, "status", "--watch", "--interval", "100ms")
	s.until("no locks\r\n\x1b[2A" + show.Erase + "20")
	for i := range 5 {
		write(t, filepath.Join(repo, "index", "lock.shared", string(rune('a'+i))), "garbage")
	}
	s.until("… and ")
	s.shown = ""
	s.until("\x1b[5A" + show.Erase + "20")
	for _, line := range strings.Split(s.shown, "\r\n") {
		line = line[strings.LastIndex(line, "\r")+1:] // the escape sequences
		n := len([]rune(line))
		assert.That(t, n <= 60, "%d columns: %q", n, line)
	}
	assert.OK(t, os.Rename(repo, repo+".away"))
	s.until("the store can't be read: not found: the repository's dir") // the cause comes first
	s.types(ctrlC)
	status := s.end()
	assert.That(t, status.Signal() == syscall.SIGINT, "it ended with %v", status)
}

// TestSilentStoreIsSaid: on a terminal every command that asks a store which never answers says
// what it waits for, in whole lines on a terminal that can't erase one. A Ctrl-C during a wait for
// the lock is acknowledged, before the store has answered.
func TestSilentStoreIsSaid(t *testing.T) {
	t.Parallel()
	const prefix = "repository s3://bucket/prefix"
	silent := silentStore(t)
	for _, c := range []struct {
		term, args string
		says       []string // Ctrl-C is typed after each
	}{
		{"xterm", "status", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "break-lock --yes", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "prune --dry-run -- true", []string{"reading the locks, 1s: " + prefix}},
		{"xterm", "backup --wait 1h -- true", []string{"s: " + prefix}},
		{"xterm", "doctor", []string{"s: whether it can be reached"}},
		{"xterm", "prune -- true", []string{"acquiring the lock, ", "deleting the lock that might have been written"}},
		{"xterm", "acquire --shared", []string{"acquiring the lock, ", "deleting the lock that might have been written"}},
		{"dumb", "prune -- true", []string{"repolock: acquiring the lock: " + prefix}},
		{"", "acquire --shared --wait 1h", []string{"repolock: acquiring the lock: " + prefix}},
		{"dumb", "status", []string{"repolock: reading the locks: " + prefix}},
		{"", "status", []string{"repolock: reading the locks: " + prefix}},
		{"dumb", "doctor", []string{"repolock: doctor: whether it can be reached\r\n"}},
		{"", "torture", []string{"repolock: 0s: 0 locks ("}},
	} {
		t.Run(c.args+" "+c.term, func(t *testing.T) {
			t.Parallel()
			env := []string{"TERM=" + c.term, "XDG_RUNTIME_DIR=" + t.TempDir(), "TMPDIR=" + t.TempDir()}
			repo, put := silent, make(chan struct{}, 1)
			if len(c.says) > 1 {
				repo = silentOnPuts(t, put)
			}
			s := onScreen(t, 24, 120, env, append([]string{"-r", repo}, strings.Fields(c.args)...)...)
			for i, text := range c.says {
				s.until(text)
				if i < len(c.says)-1 {
					<-put
				}
				s.types(ctrlC)
			}
			assert.That(t, c.term == "xterm" || !strings.Contains(s.shown, "\x1b"), "shown: %q", s.shown)
		})
	}
}

// silentOnPuts returns a repository on a server that lists no objects, and answers nothing else. The server sends
// to put when a put has come.
func silentOnPuts(t *testing.T, put chan<- struct{}) (repo string) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "<ListBucketResult><Name>bucket</Name><IsTruncated>false</IsTruncated></ListBucketResult>")
			return
		}
		select {
		case put <- struct{}{}:
		default:
		}
		_, _ = io.Copy(io.Discard, r.Body) // the context of a request ends with its connection once the body is read
		<-r.Context().Done()
	}))
	t.Cleanup(func() { server.CloseClientConnections(); server.Close() })
	return "s3://bucket/prefix?region=us-east-1&endpoint=" + server.URL
}

// silentStore returns a repository on a server that takes connections, and never answers.
func silentStore(t *testing.T) (repo string) {
	t.Helper()
	silent, err := net.Listen("tcp", "127.0.0.1:0") // the system takes connections, and no process reads
	assert.OK(t, err)
	t.Cleanup(func() { silent.Close() })
	return "s3://bucket/prefix?region=us-east-1&endpoint=http://" + silent.Addr().String()
}

func exitOf(t *testing.T, err error) int {
	t.Helper()
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		assert.OK(t, err)
		return 0
	}
	return exit.ExitCode()
}

// TestDoctorPermission: the table shows each lacking permission, and the exit code is 77. So it is for
// an audit log that can't be read.
func TestDoctorPermission(t *testing.T) {
	dir, command := ordinary(t)
	repo := filepath.Join(dir, "repo")
	assert.OK(t, os.Mkdir(repo, 0o777))
	for _, test := range []struct {
		mode fs.FileMode
		says string // on stdout, or on stderr if there is no table
	}{
		{0o555, `put "index/locks/doctor-`},
		{0o333, `opening the repository`},
		{0, "opening the repository"},
	} {
		assert.OK(t, os.Chmod(repo, test.mode))
		code, out := command("-r", repo, "doctor")
		assert.That(t, code == fault.ExitPermission && strings.Contains(out, test.says) && strings.Contains(out, "locks need permissions") == (test.mode == 0o555),
			"mode %o: %d\n%s", test.mode, code, out)
	}
	log := filepath.Join(dir, "log")
	write(t, log, "")
	assert.OK(t, os.Chmod(log, 0))
	code, out := command("history", log)
	assert.That(t, code == fault.ExitPermission && strings.HasPrefix(out, "repolock: error: open ") && !strings.Contains(out, "locking needs"),
		"exit code %d\n%s", code, out)
}

// TestForbiddenStrays: an ordinary user acquires beside folders of other programs that only another user can read, and
// status and doctor name them. A folder with any other name fails the command.
func TestForbiddenStrays(t *testing.T) {
	dir, command := ordinary(t)
	repo := filepath.Join(dir, "repo")
	forbidden := func(key string) string {
		path := filepath.Join(repo, "index", filepath.FromSlash(key))
		assert.OK(t, os.MkdirAll(path, 0o777))
		t.Cleanup(func() { _ = os.Chmod(path, 0o700) }) // so that it can be removed
		for above := filepath.Dir(path); above != dir; above = filepath.Dir(above) {
			assert.OK(t, os.Chmod(above, 0o777))
		}
		assert.OK(t, os.Chmod(path, map[bool]fs.FileMode{true: 0o700, false: 0}[os.Geteuid() == 0]))
		return path
	}
	for _, key := range []string{"lock.shared/lost+found", "lock.shared/.snapshot/hourly.0", "lock.shared/@eaDir", "lock.intent/lost+found", "lock.intent/#recycle"} {
		forbidden(key)
	}
	assert.OK(t, os.WriteFile(filepath.Join(repo, "index/lock.shared/Thumbs.db"), []byte("x"), 0))
	commands := [][]string{{"backup", "--", "true"}, {"prune", "--", "true"}, {"status"}, {"doctor"}, {"break-lock", "--yes"}, {"break-lock", "--yes", "--stale"}}
	for _, args := range commands {
		code, out := command(append([]string{"-r", repo}, args...)...)
		assert.That(t, code == 0, "%q: %d\n%s", args, code, out)
		switch args[0] {
		case "status":
			assert.That(t, strings.HasPrefix(out, "no locks\nignored, because it is no lock: index/lock.intent/#recycle/\n"), "status:\n%s", out)
		case "doctor":
			assert.That(t, strings.Contains(strings.Join(strings.Fields(out), " "), "it ignores 6 files of other programs: index/lock.intent/#recycle/, index/lock.intent/lost+found/,"), "doctor:\n%s", out)
		}
	}
	for _, key := range []string{"lock.shared/laptop", "lock.intent/laptop", "lock.shared/laptop/lost", "lock.shared"} {
		path := forbidden(key)
		for _, args := range commands {
			code, out := command(append([]string{"-r", repo}, args...)...)
			out = strings.Join(strings.Fields(out), " ")
			assert.That(t, code == fault.ExitPermission && strings.Contains(out, "permission denied") && strings.Contains(out, path), "%s: %q: %d\n%s", key, args, code, out)
		}
		assert.OK(t, os.Chmod(path, 0o777))
	}
}

// ordinary returns a directory of an ordinary user, and a function that runs repolock as this user.
func ordinary(t *testing.T) (dir string, command func(args ...string) (code int, out string)) {
	t.Helper()
	dir, err := os.MkdirTemp("/tmp", "ordinary") // other users might not reach TMPDIR
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(dir) })
	bin, err := exec.LookPath("repolock")
	assert.OK(t, err)
	assert.Output(t, exec.Command("cp", bin, filepath.Join(dir, "repolock")))
	assert.OK(t, os.Chmod(dir, 0o755))
	var as *syscall.Credential // nil if we are an ordinary user
	if os.Geteuid() == 0 {
		const nobody = 65534 // file modes don't bind root
		as = &syscall.Credential{Uid: nobody, Gid: nobody}
		assert.OK(t, os.Chown(dir, nobody, nobody))
	}
	return dir, func(args ...string) (code int, out string) {
		cmd := exec.Command(filepath.Join(dir, "repolock"), args...)
		cmd.Dir, cmd.SysProcAttr = "/", &syscall.SysProcAttr{Credential: as}
		said, err := cmd.CombinedOutput()
		return exitOf(t, err), string(said)
	}
}

// TestDoctorInterrupted: a signal ends doctor, which deletes its objects first, and says so in one line.
func TestDoctorInterrupted(t *testing.T) {
	for _, sig := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM} {
		bucket, held := fakes3.New("bucket"), make(chan struct{})
		var puts atomic.Int32
		hold := sync.OnceFunc(func() { close(held) })
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Method == http.MethodPut && strings.Contains(r.URL.Path, "/list/") && puts.Add(1) > 1 {
				_, _ = io.Copy(io.Discard, r.Body)
				hold()
				<-r.Context().Done() // doctor gives it up
				return
			}
			bucket.ServeHTTP(w, r)
		}))
		objects := func() []string {
			keys, err := store.Keys(t.Context(), bucket.Objects(), "")
			assert.OK(t, err)
			return keys
		}
		var out said
		doctor := exec.Command("repolock", "-r", "s3://bucket/p?region=us-east-1&endpoint="+server.URL, "doctor")
		doctor.Stdout, doctor.Stderr = &out, &out
		assert.OK(t, doctor.Start())
		select {
		case <-held:
		case <-time.After(hang):
			t.Fatal("it writes nothing: ", out.String())
		}
		assert.That(t, len(objects()) != 0, "it has written nothing yet")
		assert.OK(t, doctor.Process.Signal(sig))
		code := exitOf(t, doctor.Wait())
		assert.That(t, code == fault.ExitSignal+int(sig) && out.String() == "repolock: error: "+session.Signalled(sig).Error()+"\n",
			"%v: exit code %d: %s", sig, code, out.String())
		left := objects()
		assert.That(t, len(left) == 0, "%v: left %q", sig, left)
		server.Close()
	}
}

// TestTortureProgress: progress is one line on a terminal, and elsewhere, with --verbose, a
// line now and then.
func TestTortureProgress(t *testing.T) {
	counts := torture.Counts{Shared: 3, Exclusive: 4, Violations: 5}
	for _, test := range []struct {
		terminal    show.Terminal
		options     show.Options
		line, lines int // prefixes of an overwritten line, and whole lines
	}{
		{show.ErasingTerminal, show.Options{}, sparse, 0}, {show.NoTerminal, show.Options{}, 0, 1}, {show.DumbTerminal, show.Options{}, 0, 2},
		{show.ErasingTerminal, show.Options{Quiet: true}, 0, 0}, {show.NoTerminal, show.Options{Quiet: true}, 0, 0}, {show.ErasingTerminal, show.Options{JSON: true}, 0, 0}, {show.DumbTerminal, show.Options{JSON: true}, 0, 0},
	} {
		var out bytes.Buffer
		l := tortureShow{Reporter: &show.Reporter{Stderr: &out, Options: test.options, Terminal: func() show.Terminal { return test.terminal }}}
		for range sparse {
			l.progress(counts)
		}
		l.Live("")
		line, lines := strings.Count(out.String(), show.Erase), strings.Count(out.String(), "\n")
		assert.That(t, line == test.line && lines == test.lines && (line+lines == 0 || strings.Contains(out.String(), "7 locks (3 shared, 4 exclusive)")),
			"%+v: %q", test, out.String())
	}
}

// TestTortureEndsAtOnce: the first Ctrl-C of a torture on a store that never answers is
// acknowledged, the second ends it and names what might be left.
func TestTortureEndsAtOnce(t *testing.T) {
	tmp := t.TempDir()
	s := onScreen(t, 24, 120, []string{"TERM=xterm", "TMPDIR=" + tmp}, "-r", silentStore(t), "torture", "--duration", "1h")
	for _, says := range []string{"0 locks (", "interrupted: "} {
		s.until(says)
		s.types(ctrlC)
	}
	status := s.end()
	assert.That(t, status.Signal() == syscall.SIGINT, "it ended with %v", status)
	shown := strings.Join(strings.Fields(s.shown), " ")
	assert.That(t, strings.Contains(shown, "error: interrupted: nothing was judged; locks and objects might be left below index/locks/torture-"),
		"shown: %q", s.shown)
	files := tree(t, tmp)
	assert.That(t, len(files) == 0, "left %v", files)
}

// TestTortureDoc runs each command of docs/evidence/torture.md unchanged, but for a shorter time.
func TestTortureDoc(t *testing.T) {
	t.Parallel()
	page, err := docblocks.Read("../../docs/evidence/torture.md")
	assert.OK(t, err)
	commands := page.Lines()
	assert.Need(t, len(commands) == 3, "%d commands found", len(commands))
	for _, c := range commands {
		t.Run(c, func(t *testing.T) {
			t.Parallel()
			want, kept := 0, 0
			if strings.Contains(c, "--no-lock") {
				want, kept = fault.ExitUnfit, 1 // the log is kept
			}
			// On a busy machine little happens in a second.
			for duration := time.Second; ; duration *= 2 {
				cmd := exec.Command("sh", "-c", c+" --duration "+duration.String())
				cmd.Dir = t.TempDir()
				tmp := t.TempDir()
				cmd.Env = append(os.Environ(), "REPOLOCK_REPO="+cmd.Dir, "TMPDIR="+tmp)
				out, err := cmd.CombinedOutput()
				code := exitOf(t, err)
				if tooShort := code == fault.ExitUnjudged || code == 0; tooShort && code != want && duration < hang {
					continue
				}
				assert.That(t, code == want && strings.Contains(string(out), "acquisitions"), "exit code %d\n%s", code, out)
				files := tree(t, tmp)
				assert.That(t, len(files) == kept, "kept %v", files)
				_, err = os.Stat(filepath.Join(cmd.Dir, "events.log"))
				assert.That(t, (err == nil) == strings.Contains(c, "--log"), "%v", err)
				return
			}
		})
	}
}

// TestTortureExit: torture exits with 0 only after a verdict without a violation.
func TestTortureExit(t *testing.T) {
	interrupted, cancel := context.WithCancelCause(t.Context())
	cancel(session.Signalled(syscall.SIGTERM))
	failed := errors.New("a disk is full")
	for _, test := range []struct {
		ctx    context.Context
		result judge.Result
		failed error
		code   int
	}{
		{t.Context(), judge.NotFound, nil, 0},
		{t.Context(), judge.Violated, nil, fault.ExitUnfit},
		{t.Context(), judge.Unknown, nil, fault.ExitUnjudged},
		{t.Context(), "", nil, fault.ExitUnjudged},
		{t.Context(), judge.Unknown, torture.ErrUnjudged, fault.ExitUnjudged},
		{t.Context(), judge.NotFound, failed, fault.ExitFailed},
		{t.Context(), judge.Violated, failed, fault.ExitUnfit},
		{t.Context(), judge.Unknown, &fault.Error{Class: fault.TortureFailed, Err: errors.New("x"), Exit: fault.ExitPermission}, fault.ExitPermission},
		{t.Context(), judge.Unknown, fault.New(fault.TortureFailed, "x"), fault.ExitUnavailable},
		{interrupted, judge.NotFound, nil, fault.ExitSignal + int(syscall.SIGTERM)},
		{interrupted, judge.Violated, nil, fault.ExitUnfit},
	} {
		code, err := (&tortureResult{Verdict: test.result}).exit(test.ctx, test.failed)
		if err != nil {
			code = fault.Exit(err)
		}
		assert.That(t, code == test.code, "%s, %v: exit code %d, want %d", test.result, test.failed, code, test.code)
	}
}

// TestTortureLeft: torture counts the objects that it leaves, if it could list them, and says why.
// JSON has their keys.
func TestTortureLeft(t *testing.T) {
	for _, test := range []struct {
		left []string
		why  string
		says string
	}{
		{nil, "", ""},
		{nil, "no answer", "objects might be left below p/, which could not be listed; remove them by hand: no answer\n"},
		{[]string{"p/a"}, "", "an object is left below p/; remove it by hand: it came back\n"},
		{[]string{"p/a", "p/b"}, "refused", "2 objects are left below p/; remove them by hand: refused\n"},
	} {
		r := torture.Report{Left: test.left}
		if test.why != "" {
			r.LeftBecause = errors.New(test.why)
		}
		result := newTortureResult(r, "p/")
		var text, json bytes.Buffer
		assert.OK(t, result.print(&show.Reporter{Stdout: &text}))
		assert.OK(t, result.print(&show.Reporter{Stdout: &json, Options: show.Options{JSON: true}}))
		assert.That(t, strings.Contains(text.String(), test.says) && strings.Contains(text.String(), "left below") == (test.says != "") &&
			strings.Contains(json.String(), test.why) && strings.Contains(json.String(), `"p/a"`) == (test.left != nil),
			"%+v: %s%s", test, text.String(), json.String())
	}
}

// TestFewProveLittle: a short torture without a violation says how little it proves.
func TestFewProveLittle(t *testing.T) {
	says := func(verdict judge.Result, n int) string {
		return (&tortureResult{Verdict: verdict, Acquisitions: 2 * few, Counts: torture.Counts{Conflicts: n}}).proves()
	}
	assert.Equal(t, says(judge.NotFound, 500), "500 attempts that met a holder prove little: one in 166 could still go wrong; try a longer --duration\n")
	assert.Equal(t, says(judge.NotFound, few)+says(judge.Violated, 5)+says(judge.Unknown, 5), "", "a long run, and others than of no violation")
}

// TestKeptLogs: the log of a torture is kept if its verdict needs evidence: a violation always does, and a verdict that
// isn't known unless too little has happened.
func TestKeptLogs(t *testing.T) {
	t.Setenv("TMPDIR", t.TempDir())
	for _, c := range []struct {
		verdict judge.Result
		tooFew  bool
		keeps   bool
	}{{judge.NotFound, false, false}, {judge.Unknown, false, true}, {judge.Unknown, true, false}, {judge.Violated, false, true}, {judge.Violated, true, true}} {
		log, err := newEvidence("")
		assert.OK(t, err)
		r := &tortureResult{Verdict: c.verdict, Acquisitions: 1}
		if c.verdict == judge.Violated {
			r.Violations = []judge.Violation{{Name: "overlap"}}
		}
		assert.OK(t, r.keep(log, c.tooFew))
		_, err = os.Stat(log.Name())
		assert.That(t, (err == nil) == c.keeps && (r.Log != "") == c.keeps, "%+v: %v, kept as %q", c, err, r.Log)
	}
}
