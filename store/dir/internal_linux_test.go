package dir

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/fsnotify/fsnotify"
	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
)

// TestFlockHolder: if a Put or a Delete can't take the flock of the repository's directory, the
// error names the directory, the process that holds the flock, and what to do.
func TestFlockHolder(t *testing.T) {
	s := opened(t)
	create(t, s, "k")
	// says tries a write, gives up after a moment, and checks the error. want is an expression.
	says := func(name, want string) {
		t.Helper()
		for op, request := range map[string]func(context.Context) error{
			"put":    func(ctx context.Context) error { return assert.Err(s.Put(ctx, "k", nil, store.PutOptions{})) },
			"delete": func(ctx context.Context) error { return s.Delete(ctx, "k") },
		} {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
			err := request(ctx)
			cancel()
			assert.Is(t, err, context.DeadlineExceeded, name)
			text := regexp.MustCompile(fmt.Sprintf("^%s \"k\": the flock on %s %s, so nothing can be written there: "+
				"end that process, or have it lock another file: context deadline exceeded$", op, s.path, want))
			assert.That(t, text.MatchString(fmt.Sprint(err)), "%s: %v", name, err)
		}
	}

	other := exec.Command("flock", s.path, "sh", "-c", "echo; read x") // it ends with its stdin
	stop := start(t, other)
	says("flock(1)", fmt.Sprintf(`is held by process %d \(flock\)`, other.Process.Pid))
	stop()

	// The process that took the flock has ended, and its child has inherited it. In a container the system
	// doesn't list the flock of an ended process.
	stop = start(t, exec.Command("sh", "-c", `exec 9<"$0" 3<&0; flock 9; { echo; read x; } <&3 & `, s.path))
	says("its child", `(is held by a process that process \d+ started before it ended|`+heldByAnother+`)`)
	stop()

	// This process itself has taken the flock, as after flock --no-fork.
	self, err := os.Open(s.path)
	assert.OK(t, err)
	defer self.Close()
	for ok := false; !ok; {
		ok, err = flock.Try(self)
		assert.OK(t, err)
	}
	says("this process", fmt.Sprintf(`is held by this process itself \(pid %d\)`, os.Getpid()))

	flock.Unlock(self)
	assert.Equal(t, flockHolder(self), heldByAnother) // the system lists none
}

// start starts a process, and waits for its first output.
func start(t *testing.T, cmd *exec.Cmd) (stop func()) {
	t.Helper()
	stdin, err := cmd.StdinPipe()
	assert.OK(t, err)
	stdout, err := cmd.StdoutPipe()
	assert.OK(t, err)
	assert.OK(t, cmd.Start())
	assert.OK(t, assert.Err(stdout.Read(make([]byte, 1))))
	return func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	}
}

// TestFlockPID: only a flock of the same file in our pid namespace counts, and no waiter does.
func TestFlockPID(t *testing.T) {
	locks := `1: FLOCK  ADVISORY  WRITE 28021 fe:00:77 0 EOF
1: -> FLOCK  ADVISORY  WRITE 28022 fe:00:77 0 EOF
2: POSIX  ADVISORY  WRITE 30 08:01:5 0 EOF
3: FLOCK  ADVISORY  READ 0 08:01:6 0 EOF
4: -> FLOCK  ADVISORY  WRITE 31 08:01:7 0 EOF
5: OFDLCK ADVISORY  READ -1 00:06:3 0 EOF
6: FLOCK
`
	for _, c := range []struct {
		major, minor uint32
		ino          uint64
		pid          int
	}{
		{0xfe, 0, 77, 28021},
		{0xfe, 0, 7, 0}, // another file
		{0xfe, 1, 77, 0},
		{8, 1, 5, 0}, // another kind of lock
		{8, 1, 6, 0}, // of another pid namespace
		{8, 1, 7, 0}, // it waits
		{0, 6, 3, 0},
	} {
		assert.Equal(t, flockPID(locks, unix.Mkdev(c.major, c.minor), c.ino), c.pid, "%+v", c)
	}
}

// TestWatchIsLocal: Watch is unsupported unless the file system is known to be local.
func TestWatchIsLocal(t *testing.T) {
	s := opened(t)
	assert.OK(t, os.Mkdir(filepath.Join(s.path, "index"), 0o700))
	for _, local := range []bool{true, false} {
		s.local = local
		_, err := s.Watch(t.Context(), "index/lock.")
		assert.That(t, errors.Is(err, errors.ErrUnsupported) != local, "local %t: %v", local, err)
	}
}

// TestWatchHeedsRemovals: the removal or rename of an object under the prefix gives a hint. The refresh
// of a lock, which renames a temporary file, gives none.
func TestWatchHeedsRemovals(t *testing.T) {
	top := filepath.Join(t.TempDir(), "index")
	w := watch{top: top, base: "lock.", hints: make(chan struct{}, 1)}
	for _, c := range []struct {
		name string
		op   fsnotify.Op
		hint bool
	}{
		{"lock.exclusive", fsnotify.Remove, true},
		{"lock.exclusive", fsnotify.Rename, true},
		{"lock.exclusive", fsnotify.Create, false},
		{"lock.exclusive", fsnotify.Write | fsnotify.Chmod, false},
		{"lock.shared/x", fsnotify.Remove, true},
		{"lock.shared/x", fsnotify.Create, false},
		{"lock.shared/.repolock-X.tmp", fsnotify.Rename, false},
		{".repolock-X.tmp", fsnotify.Remove, false},
		{"packs", fsnotify.Remove, false},
		{"lock-fence", fsnotify.Remove, false},
	} {
		w.note(fsnotify.Event{Name: filepath.Join(top, filepath.FromSlash(c.name)), Op: c.op})
		select {
		case <-w.hints:
			assert.That(t, c.hint, "%s of %s is a hint", c.op, c.name)
		default:
			assert.That(t, !c.hint, "%s of %s is no hint", c.op, c.name)
		}
	}
}

// TestWatchedFolders: a watch of a prefix watches the folders under it, and no others, because each of their files would
// wake it. It ends with its watcher.
func TestWatchedFolders(t *testing.T) {
	top := t.TempDir()
	for _, name := range []string{"lock.shared", "lock.intent", "packs", files.NewTemp()} {
		assert.OK(t, os.Mkdir(filepath.Join(top, name), 0o700))
	}
	assert.OK(t, os.WriteFile(filepath.Join(top, "lock.exclusive"), nil, 0o600))
	w := watch{top: top, base: "lock.", hints: make(chan struct{}, 1)}
	var err error
	w.Watcher, err = fsnotify.NewWatcher()
	assert.OK(t, err)
	assert.OK(t, w.begin())
	watched := w.WatchList()
	slices.Sort(watched)
	assert.Equal(t, watched, []string{top, filepath.Join(top, "lock.intent"), filepath.Join(top, "lock.shared")})
	assert.OK(t, w.Close())
	w.run(t.Context())
}

// watchFile begins to watch one object. next passes on the kernel's next event, and reports whether it is a hint.
func watchFile(t *testing.T) (w *watch, next func() (fsnotify.Event, bool)) {
	t.Helper()
	top := t.TempDir()
	w = &watch{top: top, base: "lock", hints: make(chan struct{}, 1)}
	assert.OK(t, os.WriteFile(filepath.Join(top, w.base), []byte("body"), 0o600))
	var err error
	w.Watcher, err = fsnotify.NewWatcher()
	assert.OK(t, err)
	t.Cleanup(func() { w.Close() })
	assert.OK(t, w.begin())
	return w, func() (fsnotify.Event, bool) {
		var e fsnotify.Event
		select {
		case e = <-w.Events:
		case <-time.After(time.Minute):
			t.Fatal("the kernel reports nothing")
		}
		w.note(e)
		select {
		case <-w.hints:
			return e, true
		default:
			return e, false
		}
	}
}

// TestWatchOfOneObject: a watch of an object isn't woken by other files in its folder. Its removal is a hint even while
// another process has the file open, and so is the removal of another object that has its key by then.
func TestWatchOfOneObject(t *testing.T) {
	w, next := watchFile(t)
	file, other := filepath.Join(w.top, w.base), filepath.Join(w.top, "lock-of-another")
	open, err := os.Open(file)
	assert.OK(t, err)
	assert.OK(t, os.WriteFile(other, nil, 0o600))
	assert.OK(t, os.Remove(other))
	assert.OK(t, os.Remove(file))
	e, hint := next()
	assert.That(t, e.Name == file && hint, "the first event is %v, a hint: %t", e, hint)
	assert.OK(t, open.Close())
	next()
	assert.OK(t, os.WriteFile(file, nil, 0o600))
	assert.OK(t, os.Remove(file))
	for hint = false; !hint; {
		e, hint = next()
	}
	assert.That(t, e.Name == file && e.Has(fsnotify.Remove), "the hint of the object that came then is %v", e)
}

// TestWatchOfAReplacedObject: after a refresh, which replaces the file, its removal is still a hint.
func TestWatchOfAReplacedObject(t *testing.T) {
	w, next := watchFile(t)
	file, temp := filepath.Join(w.top, w.base), filepath.Join(w.top, ".repolock-X.tmp")
	for range 3 {
		assert.OK(t, os.WriteFile(temp, nil, 0o600))
		assert.OK(t, os.Rename(temp, file))
		for removed := false; !removed; {
			e, hint := next()
			removed = e.Has(fsnotify.Remove)
			assert.That(t, e.Name == file && hint, "%v at a refresh, a hint: %t", e, hint)
		}
	}
	assert.OK(t, os.Remove(file))
	_, hint := next()
	assert.That(t, hint, "the removal after refreshes is no hint")
}

// TestLateMount: a directory on a file system that shows other machines' files late isn't opened.
func TestLateMount(t *testing.T) {
	dir := t.TempDir()
	f, err := os.Open(dir)
	assert.OK(t, err)
	defer f.Close()
	name := mountType(f)
	assert.Need(t, name != "", "the file system has no type")
	defer func(was map[string]string) { late = was }(late)
	late = map[string]string{name: "shows them late"}
	assert.Says(t, assert.Err(Open(t.Context(), dir)), store.ErrConfig, "a mount of "+name+" shows them late")
}

// TestMountType: a file system has the type of its line in the table. The attributes of a mount of rclone show through a
// file system above it.
func TestMountType(t *testing.T) {
	const table = "22 1 0:20 / / rw - ext4 /dev/sda1 rw\n23 1 0:53 / /mnt rw shared:1 - fuse /srv rw\n"
	for want, c := range map[string]struct{ device, files, size uint64 }{
		"ext4": {20, 1e9, 4096}, "fuse": {53, 0, 0}, "rclone": {53, 1e9, 0}, "": {54, 0, 0},
	} {
		st := unix.Stat_t{Dev: unix.Mkdev(0, uint32(c.device)), Size: int64(c.size)}
		assert.Equal(t, typed(st, unix.Statfs_t{Files: c.files, Frsize: 4096}, table), want)
	}
}

// TestServed: a FUSE file system has the name of its program.
func TestServed(t *testing.T) {
	for want, system := range map[string][2]string{
		"rclone": {"fuse.rclone", "remote:"}, "davfs2": {"fuse", "https://host/dav"}, "fuse": {"fuse", "/dev/fuse"}, "ext4": {"ext4", "http://x"},
	} {
		assert.Equal(t, served(system[0], system[1]), want)
	}
	assert.Equal(t, served("fuse", "http://host/dav"), "davfs2")
}

// noted returns the kernel's notes of events in a directory while do runs.
func noted(t *testing.T, path string, events uint32, do func()) []byte {
	t.Helper()
	fd, err := unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC)
	assert.OK(t, err)
	defer unix.Close(fd)
	assert.OK(t, assert.Err(unix.InotifyAddWatch(fd, path, events)))
	do()
	notes := make([]byte, 1<<16)
	n, err := unix.Read(fd, notes)
	assert.That(t, err == nil || err == unix.EAGAIN, "reading the notes: %v", err)
	return notes[:max(n, 0)]
}

// TestOpensNoPipe: no request opens a pipe in place of an object. A writer that waits for the pipe's reader would go on.
func TestOpensNoPipe(t *testing.T) {
	s := opened(t)
	create(t, s, "index/lock.other")
	const key = "index/lock.exclusive"
	path := filepath.Join(s.path, key)
	for name, request := range map[string]func() error{
		"List":          func() error { return assert.Err(s.List(t.Context(), "index/lock.", "")) },
		"Get":           func() error { return got(s.Get(t.Context(), key, 100)) },
		"Put":           func() error { return assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{})) },
		"Put if absent": func() error { return assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{IfAbsent: true})) },
		"Put if match":  func() error { return assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{IfMatch: "e"})) },
		"Delete":        func() error { return s.Delete(t.Context(), key) },
		"DeleteIfMatch": func() error { return s.DeleteIfMatch(t.Context(), key, "e") },
	} {
		assert.OK(t, unix.Mkfifo(path, 0o600))
		var err error
		opened := noted(t, filepath.Dir(path), unix.IN_OPEN, func() { err = request() })
		assert.That(t, !bytes.Contains(opened, []byte("lock.exclusive\x00")), "%s: %v: the pipe was opened: %q", name, err, opened)
		_ = os.Remove(path)
	}
}

// TestFolderIsReadyByItsName: a new folder gets its owner and mode under a temporary name, so that it never refuses
// another user.
func TestFolderIsReadyByItsName(t *testing.T) {
	s := opened(t)
	made := noted(t, s.path, unix.IN_CREATE, func() { create(t, s, "index/a") })
	assert.That(t, len(made) > 0 && !bytes.Contains(made, []byte("index\x00")), "the folder's name was made: %q", made)
}

// TestNothingStaysOpen: a request closes the directories that it has opened above its object.
func TestNothingStaysOpen(t *testing.T) {
	s := opened(t)
	const key = "index/locks/n/lock.shared/a"
	for name, request := range map[string]func() error{
		"Put":      func() error { return assert.Err(s.Put(t.Context(), key, nil, store.PutOptions{})) },
		"Get":      func() error { return got(s.Get(t.Context(), key, 100)) },
		"List":     func() error { return assert.Err(s.List(t.Context(), "index/locks/n/lock.", "")) },
		"HasOther": func() error { return assert.Err(s.HasOther(t.Context(), "index/locks/m")) },
		"Delete":   func() error { return s.Delete(t.Context(), "index/locks/n/lock.shared/b") },
	} {
		create(t, s, key)
		assert.OK(t, request())
		fds, err := filepath.Glob("/proc/self/fd/*")
		assert.OK(t, err)
		for _, fd := range fds {
			open, _ := os.Readlink(fd)
			assert.That(t, !strings.HasPrefix(open, s.path), "after %s %s is open", name, open)
		}
	}
}
