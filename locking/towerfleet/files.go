package towerfleet

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// file is a lock file, or the temporary file of a script.
type file struct {
	*lockfile.File
	record *record // nil if the file is Unreadable
}

// read returns the lock file of a name, or nil if there is none. A file that isn't a valid lock is Unreadable.
func read(path, name string) (*file, error) {
	there, err := lockfile.Read(path, maxSize)
	if err != nil {
		return nil, fmt.Errorf("lock file %s can't be read: %w", path, err)
	}
	if there == nil {
		return nil, nil
	}
	f := &file{File: there}
	if f.Unreadable == "" {
		if f.record, err = parse(f.Body, name); err != nil {
			f.record, f.Unreadable = nil, err.Error()
		}
	}
	return f, nil
}

// isHeartbeat reports whether a file is a script's next heartbeat, which the script's mv renames to the lock file.
func (f *file) isHeartbeat() bool { return strings.HasSuffix(f.Path, ".lock.heartbeat.tmp") }

func (f *file) same(other *file) bool { return bytes.Equal(f.Body, other.Body) }

// revision returns a hash of the file's content. If the file can't be read, the hash also covers its name, size and
// time.
func (f *file) revision() string {
	if f.record != nil {
		return hash(f.Body)
	}
	return hash(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", f.Path, f.Unreadable, f.Info.Size(), f.Info.ModTime().UnixNano(), f.Body))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ours is the end of the names of this package's temporary files. The script's pattern *.lock doesn't match them.
const ours = ".repolock-tmp"

// temp returns a new name for a temporary file.
func (b *Backend) temp(name string) string {
	return filepath.Join(b.dir, "."+name+".lock."+rand.Text()+ours)
}

// These are variables for tests.
var (
	link     = os.Link
	exchange = swap
	remove   = os.Remove
	rename   = os.Rename
	tryFlock = flock.Try
)

// create creates the lock file of a name in one step. It reports false if the file exists.
func (b *Backend) create(name string, data []byte) (bool, error) {
	f, err := lockfile.Create(b.path(name), b.temp(name), data, 0o600, link)
	if errors.Is(err, fs.ErrExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("lock file %s wasn't created: %w", b.path(name), err)
	}
	f.Open.Close()
	return true, nil
}

// replace replaces the lock file by one with data, if old reports true for the lock file at the moment of the
// replacement. Otherwise replace reports false. The caller holds the flock.
//
// replace swaps the lock file and a new file, and looks at the old file. If old reports false for it, the file belongs
// to another program, and replace puts it back.
func (b *Backend) replace(name string, data []byte, old func(*file) bool) (ok bool, err error) {
	path, temp := b.path(name), b.temp(name)
	f, err := lockfile.Write(temp, data, 0o600)
	if err != nil {
		return false, fmt.Errorf("file %s for lock %s wasn't written: %w", temp, name, err)
	}
	f.Open.Close()
	swapped := false
	defer func() {
		if !swapped || err == nil { // otherwise temp can be another holder's lock
			_ = os.Remove(temp)
		}
	}()
	switch err := exchange(temp, path); {
	case errors.Is(err, fs.ErrNotExist): // another program has removed the lock file
		return false, nil
	case err != nil && noSwap(err):
		return b.overwrite(name, temp, old)
	case err != nil:
		return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
	}
	swapped = true
	got, err := b.readSwapped(name, temp)
	if err != nil || old(got) {
		return err == nil, err
	}
	return false, b.putBack(name, temp, got.Body, data)
}

// putBack undoes a swap that took another program's file. That file, whose body is theirs, is now temp, and our file,
// with data, is the lock file. putBack swaps them back. Between the two swaps, the other program might have removed our
// file, and a third program might have created its own. Then the second swap takes the third program's file. So putBack
// swaps again, until it gets the file that its last swap has put there.
func (b *Backend) putBack(name, temp string, theirs, data []byte) error {
	path := b.path(name)
	for there := data; ; { // the body that we expect in the lock file
		err := exchange(temp, path)
		if errors.Is(err, fs.ErrNotExist) { // another program has removed the lock file
			return nil
		}
		if err != nil {
			return fmt.Errorf("lock file %s has replaced another holder's file, which is now %s and can't be put back: %w", path, temp, err)
		}
		got, err := b.readSwapped(name, temp)
		if err != nil {
			return err
		}
		if bytes.Equal(got.Body, there) || sameHandle(got, data, name) { // a script might have written a heartbeat into our file
			return nil
		}
		there, theirs = theirs, got.Body
	}
}

// readSwapped reads the file that a swap has put into temp.
func (b *Backend) readSwapped(name, temp string) (*file, error) {
	got, err := read(temp, name)
	if err != nil || got == nil {
		return nil, fmt.Errorf("lock file %s has replaced another file, which is now %s and can't be read: %w", b.path(name), temp, cmp.Or(err, fs.ErrNotExist))
	}
	return got, nil
}

// noSwap reports whether the system or the file system can't swap files.
func noSwap(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}

// overwrite is replace on a system that can't swap files.
func (b *Backend) overwrite(name, temp string, old func(*file) bool) (bool, error) {
	path := b.path(name)
	now, err := read(path, name)
	if now == nil || err != nil || !old(now) {
		return false, err
	}
	if err := rename(temp, path); err != nil {
		return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
	}
	return true, nil
}

// rivals returns the temporary files that a script is about to rename to the lock file of a handle, for an acquisition
// or a heartbeat. It omits three kinds of files: a file whose request is stale, because its script has ended; a file
// that can't be read and is older than DefaultTTL; and a heartbeat of the handle itself.
func (b *Backend) rivals(h locking.Handle) (live []*file, err error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), h.Key()+".lock.") || !strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		f, err := read(filepath.Join(b.dir, e.Name()), h.Key())
		if err != nil {
			return nil, err
		}
		now := b.opts.Clock.Now()
		switch {
		case f == nil, b.mine(f, h):
		case f.record != nil && f.record.stale(now):
		case f.record == nil && now.Sub(f.Info.ModTime()) > DefaultTTL:
		default:
			live = append(live, f)
		}
	}
	return live, nil
}

// executor returns our user id. It is a variable for tests.
var executor = os.Geteuid

func (b *Backend) unfit(format string, args ...any) error {
	return fault.New(locking.ErrUnfit, "lock directory %s %s", b.dir, fmt.Sprintf(format, args...))
}

// prepare creates and checks the directory.
func (b *Backend) prepare() error {
	if !flock.Supported {
		return b.unfit("can't be used: this system has no flock")
	}
	if !b.opts.Observe {
		if err := b.mkdir(); err != nil {
			return err
		}
	}
	info, err := os.Stat(b.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.Observe:
		return nil
	case errors.Is(err, fs.ErrNotExist):
		return b.unfit("is a link to a missing directory, which wasn't created: mount that, or correct the URL")
	case err != nil:
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	switch mode, uid := info.Mode().Perm(), lockfile.Owner(info); {
	case !info.IsDir():
		return b.unfit("isn't a directory: correct the URL")
	case uid != executor():
		return b.unfit("belongs to uid %d, which can't read the locks of uid %d: run this command as its owner", uid, executor())
	case mode != 0o700:
		return b.unfit("has mode %04o, so that others can see or change its locks, or its owner can't: "+
			"run chmod 700 on it once you know who uses it", mode)
	}
	f, err := os.Open(b.dir)
	if err != nil {
		return fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	defer flock.Close(f)
	if _, err = tryFlock(f); err != nil {
		return b.unfit("can't be locked by flock: put it on a local file system: %v", err)
	}
	return nil
}

// mkdir creates a missing directory. It refuses if locks in that directory would probably exclude no other program. If
// the parent is missing, it might be on a share that isn't mounted. If the parent has locks, the user has probably
// given a lock's name with a slash.
func (b *Backend) mkdir() error {
	if _, err := os.Lstat(b.dir); err == nil {
		return nil
	}
	parent := filepath.Dir(b.dir)
	if lock := lockIn(parent); lock != "" {
		return b.unfit("wasn't created, because %s has locks itself (%s), and a lock's name has no slash: "+
			"correct the URL, or create the directory with mode 0700", parent, lock)
	}
	switch err := os.Mkdir(b.dir, 0o700); {
	case errors.Is(err, fs.ErrExist):
	case errors.Is(err, fs.ErrNotExist):
		return b.unfit("wasn't created, because %s doesn't exist: mount it, create it, or correct the URL", parent)
	case errors.Is(err, syscall.ENOTDIR):
		return b.unfit("wasn't created, because %s isn't a directory: correct the URL", parent)
	case err != nil:
		return fmt.Errorf("lock directory %s can't be created: %w", b.dir, err)
	case b.opts.Created != nil:
		b.opts.Created(b.dir)
	}
	return nil
}

// lockIn returns the name of a lock file in a directory, or "" if it finds none.
func lockIn(dir string) string {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		name, ok := strings.CutSuffix(e.Name(), ".lock")
		if !ok || checkName(name) != nil {
			continue
		}
		if f, err := read(filepath.Join(dir, e.Name()), name); err == nil && f != nil && f.record != nil {
			return e.Name()
		}
	}
	return ""
}

// exclusive takes the flock of the directory.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	unlock, locked, err := flock.Dir(ctx, b.opts.Clock, b.dir, tryFlock)
	if err == nil && !locked {
		unlock()
		err = b.unfit("can't be locked by flock any more: put it on a local file system")
	}
	return unlock, err
}

// locked takes the flock of the directory, and calls f with the lock file of a name, or nil if there is none.
func (b *Backend) locked(ctx context.Context, name string, f func(now *file) error) error {
	unlock, err := b.exclusive(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	now, err := read(b.path(name), name)
	if err != nil {
		return err
	}
	return f(now)
}
