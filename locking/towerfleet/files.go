package towerfleet

import (
	"bytes"
	"cmp"
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

	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// file is a lock file, or the temporary file of another program.
type file struct {
	*lockfile.File
	record *record // nil if there is Trouble
}

// read returns the lock file of a name, or nil if there is none. A file that isn't a lock's is
// no error but trouble: it is held.
func read(path, name string) (*file, error) {
	there, err := lockfile.Read(path, maxSize)
	if err != nil {
		return nil, fmt.Errorf("lock file %s can't be read: %w", path, err)
	}
	if there == nil {
		return nil, nil
	}
	f := &file{File: there}
	if f.Trouble == "" {
		if f.record, err = parse(f.Body, name); err != nil {
			f.record, f.Trouble = nil, err.Error()
		}
	}
	return f, nil
}

// isHeartbeat reports whether a file is what the script's mv is to put in the lock's place.
func (f *file) isHeartbeat() bool { return strings.HasSuffix(f.Path, ".lock.heartbeat.tmp") }

func (f *file) same(other *file) bool { return bytes.Equal(f.Body, other.Body) }

// hash is of the file's bytes.
func (f *file) hash() string { return hash(f.Body) }

// revision is the file's hash; for a file that can't be read, of what is known of it.
func (f *file) revision() string {
	if f.record != nil {
		return f.hash()
	}
	return hash(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", f.Path, f.Trouble, f.Info.Size(), f.Info.ModTime().UnixNano(), f.Body))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ours marks the temporary files of this package. The script's *.lock doesn't match them.
const ours = ".repolock-tmp"

// temp returns the name of a temporary file beside a lock.
func (b *Backend) temp(name string) string {
	return filepath.Join(b.dir, "."+name+".lock."+rand.Text()+ours)
}

// Tests make these fail.
var (
	link     = os.Link
	exchange = swap
	remove   = os.Remove
)

// create makes the lock file of a name in one step. It reports false if there is one.
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

// replace puts new content in the place of the lock file that the caller has seen, if the file
// in place satisfies old at the moment of the replacement. It reports false if it doesn't.
// The caller has the flock.
//
// It swaps the two files, looks at the one that it got, and swaps another program's back. Before
// that is back, its program can remove what it takes for its lock, and a third can create one: then
// the swap gets that third lock, which goes back too. So the swaps end when they get what they put in.
func (b *Backend) replace(name string, data []byte, old func(*file) bool) (ok bool, err error) {
	path, temp := b.path(name), b.temp(name)
	f, err := lockfile.Write(temp, data, 0o600)
	if err != nil {
		return false, fmt.Errorf("file %s for lock %s wasn't written: %w", temp, name, err)
	}
	f.Open.Close()
	var got *file // in temp: what the last swap got
	defer func() {
		if got == nil || err == nil { // otherwise it can be the lock of another holder
			_ = os.Remove(temp)
		}
	}()
	for put := data; ; {
		err := exchange(temp, path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // it was removed in the meantime
			return false, nil
		case err != nil && got != nil:
			return false, fmt.Errorf("lock file %s has replaced that of another holder, which can't be put back: %w", path, err)
		case err != nil && noSwap(err):
			return b.overwrite(name, temp, old)
		case err != nil:
			return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
		}
		last := got
		if got, err = read(temp, name); err != nil || got == nil {
			got = &file{}
			return false, fmt.Errorf("the file that lock file %s has replaced can't be read: %w", path, cmp.Or(err, fs.ErrNotExist))
		}
		switch {
		case last == nil && old(got):
			return true, nil
		case last == nil:
		case bytes.Equal(got.Body, put), sameHandle(got, data, name): // a script's heartbeat can have changed ours
			return false, nil
		default:
			put = last.Body
		}
	}
}

// noSwap reports whether a swap failed because the kernel or the file system has none.
func noSwap(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}

// overwrite is replace for systems that can't swap files.
func (b *Backend) overwrite(name, temp string, old func(*file) bool) (bool, error) {
	path := b.path(name)
	now, err := read(path, name)
	if now == nil || err != nil || !old(now) {
		return false, err
	}
	if err := os.Rename(temp, path); err != nil {
		return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
	}
	return true, nil
}

// rivals returns the temporary files of other programs that are about to become the lock of a
// handle's key: those of a script's acquisition and of a script's heartbeat. A file whose request is
// stale can't: its program has ended. One that can't be read is taken to have the default ttl. A
// script's heartbeat of the handle's own lock is no rival.
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
