//go:build unix

package daemon

import (
	"context"
	"encoding/gob"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
)

// place sets the directories for sockets.
func place(t *testing.T) (runtime, tmp string) {
	t.Helper()
	base, err := os.MkdirTemp("/tmp", "k") // TMPDIR, and so t.TempDir's, can be too long for sockets
	assert.OK(t, err)
	t.Cleanup(func() { os.RemoveAll(base) })
	runtime, tmp = filepath.Join(base, "run"), filepath.Join(base, "tmp")
	for _, dir := range []string{runtime, tmp} {
		assert.OK(t, os.Mkdir(dir, 0o700))
	}
	t.Setenv("XDG_RUNTIME_DIR", runtime)
	t.Setenv("TMPDIR", tmp)
	return runtime, tmp
}

// TestDir: a directory isn't used if other users can use it, or replace it.
func TestDir(t *testing.T) {
	for name, test := range map[string]struct {
		prepare func(runtime, dir string) error
		says    string // "": it is fit
	}{
		"none yet":        {func(_, _ string) error { return nil }, ""},
		"there already":   {func(_, dir string) error { return os.Mkdir(dir, 0o700) }, ""},
		"others can look": {func(_, dir string) error { return errors.Join(os.Mkdir(dir, 0), os.Chmod(dir, 0o711)) }, "other users can use"},
		"a symlink": {func(runtime, dir string) error {
			return errors.Join(os.Mkdir(runtime+"/x", 0o700), os.Symlink("x", dir))
		}, "is no directory"},
		"a file":            {func(_, dir string) error { return os.WriteFile(dir, nil, 0o700) }, "is no directory"},
		"others' parent":    {func(runtime, _ string) error { return os.Chmod(runtime, 0o777) }, "other users can replace"},
		"others' but /tmp":  {func(runtime, _ string) error { return os.Chmod(runtime, 0o777|os.ModeSticky) }, ""},
		"can't be made":     {func(runtime, _ string) error { return os.Symlink("none/none", runtime+"/repolock") }, "is no directory"},
		"no such directory": {func(runtime, _ string) error { return os.Setenv("TMPDIR", runtime+"/none") }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			runtime, _ := place(t)
			dir := filepath.Join(runtime, "repolock")
			assert.OK(t, test.prepare(runtime, dir))
			got, err := socketDir("", true)
			if test.says == "" {
				info, serr := os.Lstat(dir)
				assert.That(t, err == nil && got == dir && serr == nil && info.Mode() == os.ModeDir|0o700, "%s %v %v", got, err, serr)
			} else {
				assert.Says(t, err, ErrDir, test.says)
			}
		})
	}
}

// TestForeign: a directory of another user isn't used.
func TestForeign(t *testing.T) {
	runtime, tmp := place(t)
	dir, err := socketDir("", true)
	assert.OK(t, err)
	assert.Says(t, private(dir, os.Geteuid()+1), ErrDir, "belongs to uid")
	if os.Geteuid() != 0 {
		return // only root can give a directory away
	}
	assert.OK(t, os.Chown(dir, 12345, -1))
	assert.Says(t, assert.Err(socketDir("", true)), ErrDir, "belongs to uid 12345")
	assert.OK(t, os.Chown(runtime, 12345, -1))
	dir, err = socketDir("", true)
	assert.OK(t, err)
	assert.Equal(t, filepath.Dir(dir), tmp)
	assert.OK(t, os.Chown(tmp, 12345, -1))
	assert.Says(t, assert.Err(socketDir("", true)), ErrDir, "other users can replace")
}

// TestToken: no other text than a token names a socket, and no error quotes it.
func TestToken(t *testing.T) {
	a, b := NewToken(), NewToken()
	assert.That(t, a != b && CheckToken(a) == nil, "%s %s %v", a, b, CheckToken(a))
	for _, bad := range []string{"", ".", "..", a + "/", "/" + a[1:], a[1:], a + "A", strings.ToLower(a), a[:25] + "\n", a + "\n", a + ".", a + "." + a[:9], a + "." + a[:11], a + "./" + a[:9], a + "/" + a[:10], "../" + a[3:], a[:25] + "\x00"} {
		err := CheckToken(bad)
		assert.That(t, err != nil && (len(bad) <= 2 || !strings.Contains(err.Error(), bad)), "%q: %v", bad, err)
		assert.That(t, assert.Err(Listen(bad)) != nil, "%q: listens", bad)
		assert.That(t, Ask(bad, "check", new(string), false) != nil, "%q: is asked", bad)
	}
	for text, what := range map[string]string{"0123456789abcdef": "this is the id of a lock, not a token", "0123456789ABCDEF": "this is no token (16 bytes)"} {
		assert.That(t, strings.Contains(fmt.Sprint(CheckToken(text)), what), "%s: %v", text, CheckToken(text))
	}
}

// TestDirElsewhere: without a runtime directory, sockets are in the directory for temporary files. A
// directory whose path is too long for a socket is skipped.
func TestDirElsewhere(t *testing.T) {
	defer func(dir string) { lastResort = dir }(lastResort)
	runtime, tmp := place(t)
	lastResort = filepath.Dir(runtime)
	long := func(dir, in string, more int) string {
		dir = filepath.Join(dir, strings.Repeat("x", maxPath-len(dir)-len("//")-len(in)-len("/")-len(NewToken())+more))
		assert.OK(t, os.Mkdir(dir, 0o700))
		return dir
	}
	ours := "repolock-" + strconv.Itoa(os.Geteuid())
	fitting, tooLong := long(runtime, "repolock", 0), long(runtime, "repolock", 1)
	fittingTmp, tooLongTmp := long(tmp, ours, 0), long(tmp, ours, 1)
	for _, test := range []struct{ runtime, tmp, want string }{
		{"", tmp, filepath.Join(tmp, ours)},
		{"relative", tmp, filepath.Join(tmp, ours)},
		{"/no/such/directory", tmp, filepath.Join(tmp, ours)},
		{fitting, tmp, filepath.Join(fitting, "repolock")},
		{tooLong, tmp, filepath.Join(tmp, ours)},
		{tooLong, fittingTmp, filepath.Join(fittingTmp, ours)},
		{tooLong, tooLongTmp, filepath.Join(lastResort, ours)},
		{"", tooLongTmp, filepath.Join(lastResort, ours)},
	} {
		t.Setenv("XDG_RUNTIME_DIR", test.runtime)
		t.Setenv("TMPDIR", test.tmp)
		dir, err := socketDir("", true)
		assert.Is(t, err, nil)
		assert.Equal(t, dir, test.want)
		l, err := Listen(NewToken())
		assert.OK(t, err)
		assert.OK(t, l.Close())
	}
	t.Setenv("TMPDIR", tmp+"/none")
	assert.Says(t, assert.Err(socketDir("", true)), ErrDir, "mkdir "+tmp+"/none")
}

// TestAsk: each request gets its own answer, an answer can have a consequence, and Close removes the socket.
func TestAsk(t *testing.T) {
	place(t)
	token := NewToken()
	l, err := Listen(token)
	assert.OK(t, err)
	over, then := make(chan struct{}), make(chan struct{})
	go func() {
		l.Serve(func(_ context.Context, do string) (any, func()) {
			if do == "b" {
				return "did b", func() { close(then) }
			}
			return "did " + do, nil
		})
		close(over)
	}()
	for _, do := range []string{"a", "b"} {
		var answer string
		assert.OK(t, Ask(token, do, &answer, false))
		assert.Equal(t, answer, "did "+do)
	}
	select {
	case <-then:
	case <-time.After(assert.Hang):
		t.Error("no consequence")
	}
	l.Close()
	<-over
	assert.Is(t, Ask(token, "a", new(string), false), ErrGone)
}

// keeper listens for a new token as a keeper does, and serves one client.
func keeper(t *testing.T, serve func(net.Conn)) (token, path string, l *net.UnixListener) {
	t.Helper()
	place(t)
	token = NewToken()
	path, err := socket(token, false)
	assert.OK(t, err)
	listener, err := net.Listen("unix", path)
	assert.OK(t, err)
	t.Cleanup(func() { listener.Close() })
	go func() {
		if conn, err := listener.Accept(); err == nil {
			serve(conn)
			conn.Close()
		}
	}()
	return token, path, listener.(*net.UnixListener)
}

// TestLog: a keeper's output is in the log, and the keeper gets its order.
func TestLog(t *testing.T) {
	if os.Getenv("KEEPER_OF_TEST") != "" {
		var order string
		assert.OK(t, gob.NewDecoder(os.Stdin).Decode(&order))
		fmt.Println("the order is", order)
		return
	}
	t.Setenv("KEEPER_OF_TEST", "1")
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	assert.OK(t, err)
	defer log.Close()
	s, err := Start([]string{"-test.run=^TestLog$"}, "to wait", log)
	assert.OK(t, err)
	assert.OK(t, s.cmd.Wait())
	said, err := os.ReadFile(log.Name())
	assert.That(t, err == nil && strings.Contains(string(said), "the order is to wait\n"), "%v: %s", err, said)
}

// TestAbandoned: a keeper is abandoned if its starter ends or says no before it has accepted the keeper.
func TestAbandoned(t *testing.T) {
	for says, want := range map[string]bool{"": true, "no": true, "yes": false} {
		in, out, err := os.Pipe()
		assert.OK(t, err)
		if says != "" {
			assert.OK(t, gob.NewEncoder(out).Encode(says == "yes"))
		}
		out.Close()
		news, err := os.Create(filepath.Join(t.TempDir(), "news"))
		assert.OK(t, err)
		l := &Line{in: gob.NewDecoder(in), news: news, out: gob.NewEncoder(news), abandoned: make(chan struct{})}
		l.listen()
		select {
		case <-l.Abandoned():
			assert.That(t, want, "it is abandoned after %q", says)
		default:
			assert.That(t, !want, "it isn't abandoned after %q", says)
		}
		assert.Equal(t, l.Tell("x") == nil, want, "after %q, the pipe to the starter is open", says)
		in.Close()
		news.Close()
	}
}

// TestSilent: a keeper that doesn't answer, or doesn't end, isn't gone.
func TestSilent(t *testing.T) {
	defer func(h, a time.Duration) { helloTime, answerTime = h, a }(helloTime, answerTime)
	helloTime, answerTime = 100*time.Millisecond, 200*time.Millisecond
	for name, says := range map[string]string{"nothing": "", "hello only": `{"pid":1}`, "answers, and stays": `{"pid":1} "yes" `} {
		t.Run(name, func(t *testing.T) {
			token, _, _ := keeper(t, func(conn net.Conn) {
				_, _ = conn.Write([]byte(says))
				<-t.Context().Done()
			})
			assert.Is(t, Ask(token, "release", new(string), true), ErrSilent)
		})
	}
}

// TestKilled: a keeper that ends before its answer is gone. The socket of a killed keeper is removed.
func TestKilled(t *testing.T) {
	token, path, l := keeper(t, func(conn net.Conn) { _, _ = conn.Write([]byte(`{"pid":1}`)) })
	l.SetUnlinkOnClose(false)
	for _, left := range []bool{true, false} {
		assert.Is(t, Ask(token, "check", new(string), false), ErrGone)
		l.Close()
		assert.Equal(t, os.IsNotExist(assert.Err(os.Lstat(path))), !left, "the socket is removed")
	}
}

func ended(o *Owner, within time.Duration) bool {
	select {
	case <-o.Ended():
		return true
	case <-time.After(within):
		return false
	}
}

// TestOwner: an owner has ended when it is a zombie, and when it ended before Watch. A later process with
// its pid isn't the owner, and isn't signalled.
func TestOwner(t *testing.T) {
	sleeper := exec.Command("sleep", "1000")
	assert.OK(t, sleeper.Start())
	defer func() { _, _ = sleeper.Process.Kill(), sleeper.Wait() }()
	p, ok := identity.Of(sleeper.Process.Pid)
	assert.Need(t, ok, "there is no such process")
	polled := func(p identity.Process) *Owner { // an owner on a system without pidfds
		return &Owner{process: p, handle: &os.Process{Pid: p.PID}, ended: make(chan struct{})}
	}
	if runtime.GOOS == "linux" {
		recycled := p
		recycled.PIDStart--
		o := Watch(recycled)
		assert.That(t, ended(o, assert.Hang), "the later process is watched")
		assert.That(t, o.Signal(syscall.SIGKILL) != nil && polled(recycled).Signal(syscall.SIGKILL) != nil, "the later process is signalled")
	}
	o, poll := Watch(p), polled(p)
	assert.Need(t, poll.handle.WithHandle(func(uintptr) {}) != nil, "it has a pidfd, and must be polled")
	go poll.watch()
	assert.That(t, !ended(poll, interval+interval/4) && !ended(o, 0), "ended, and runs")
	assert.OK(t, o.Signal(syscall.SIGKILL))
	assert.That(t, ended(o, assert.Hang) && ended(poll, assert.Hang), "a zombie hasn't ended")
	assert.That(t, ended(Watch(p), assert.Hang), "the end isn't seen afterwards")
	_ = sleeper.Wait()
	late := Watch(p)
	seen := ended(late, assert.Hang) && late.Signal(syscall.SIGTERM) != nil && o.Signal(syscall.SIGTERM) != nil
	assert.That(t, seen, "the end isn't seen when nothing is left")
}

// TestTaken: if another user has taken the directory for temporary files' sockets, a keeper listens in a
// new directory, which its token names, and removes it at the end.
func TestTaken(t *testing.T) {
	for name, take := range map[string]func(dir string) error{
		"a file":    func(dir string) error { return os.WriteFile(dir, nil, 0o600) },
		"a symlink": func(dir string) error { return os.Symlink("/", dir) },
		"another user's": func(dir string) error {
			if os.Geteuid() != 0 {
				return os.Mkdir(dir, 0o755)
			}
			return errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, 12345, -1))
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, tmp := place(t)
			t.Setenv("XDG_RUNTIME_DIR", "")
			assert.OK(t, os.Chmod(tmp, 0o777|os.ModeSticky))
			assert.OK(t, take(filepath.Join(tmp, "repolock-"+strconv.Itoa(os.Geteuid()))))
			token := NewToken()
			assert.OK(t, CheckToken(token))
			assert.That(t, NewToken()[26:] != token[26:], "the place can be foreseen")
			l, err := Listen(token)
			assert.OK(t, err)
			go l.Serve(func(context.Context, string) (any, func()) { return "held", nil })
			var answer string
			assert.OK(t, Ask(token, "check", &answer, false))
			assert.That(t, answer == "held" && !Over(token), "%q", answer)
			assert.OK(t, l.Close())
			assert.Is(t, Ask(token, "check", &answer, false), ErrGone)
			assert.That(t, Over(token), "its keeper hasn't ended")
			left, err := os.ReadDir(tmp)
			assert.OK(t, err)
			assert.That(t, len(left) == 1, "left: %v", left)
			// Another user who knows the name now can take the new directory too.
			dir := filepath.Join(tmp, "repolock-"+strconv.Itoa(os.Geteuid())+token[26:])
			assert.OK(t, take(dir))
			assert.Is(t, Ask(token, "check", &answer, false), ErrDir)
			assert.Is(t, assert.Err(Listen(token)), ErrDir)
			assert.That(t, !Over(token), "its keeper has ended")
		})
	}
}

// TestTakenUnsafe: a new directory that other users can replace isn't used either, and is removed.
func TestTakenUnsafe(t *testing.T) {
	_, tmp := place(t)
	t.Setenv("XDG_RUNTIME_DIR", "")
	assert.OK(t, os.WriteFile(filepath.Join(tmp, "repolock-"+strconv.Itoa(os.Geteuid())), nil, 0o600))
	assert.OK(t, os.Chmod(tmp, 0o777))
	assert.Says(t, assert.Err(Listen(NewToken())), ErrDir, "other users can replace")
	left, err := os.ReadDir(tmp)
	assert.That(t, err == nil && len(left) == 1, "left: %v %v", left, err)
}
