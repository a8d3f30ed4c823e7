package towerfleet

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/text"
)

// file is a lock file, or the temporary file of another program.
type file struct {
	path     string
	data     []byte
	record   *record // nil if there is trouble
	trouble  string
	modified time.Time
	size     int64
	// irregular is set for what is no regular file.
	irregular bool
}

// isHeartbeat reports whether a file is what the script's mv is to put in the lock's place.
func (f *file) isHeartbeat() bool { return strings.HasSuffix(f.path, ".lock.heartbeat.tmp") }

// read returns the lock file of a name, or nil if there is none. A file that isn't a lock's is
// no error but trouble: it is held.
func read(path, name string) (*file, error) {
	info, err := os.Lstat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("lock file %s can't be read: %w", path, err)
	}
	f := &file{path: path, modified: info.ModTime(), size: info.Size()}
	if !info.Mode().IsRegular() {
		f.trouble, f.irregular = "it is no regular file", true
		return f, nil
	}
	open, err := os.OpenFile(path, os.O_RDONLY|noFollow, 0)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		f.trouble = text.Line(err.Error())
		return f, nil
	}
	defer open.Close()
	if f.data, err = io.ReadAll(io.LimitReader(open, maxSize+1)); err != nil {
		return nil, fmt.Errorf("lock file %s can't be read: %w", path, err)
	}
	if len(f.data) > maxSize {
		f.trouble = "it is larger than 1 MiB"
		return f, nil
	}
	if f.record, err = parse(f.data, name); err != nil {
		f.record, f.trouble = nil, err.Error()
	}
	return f, nil
}

// ours marks the temporary files of this package. The script's *.lock doesn't match them.
const ours = ".repolock-tmp"

// temp writes a temporary file beside a lock. The file is synced, so that a lock that is there
// after a power cut is complete.
func (b *Backend) temp(name string, data []byte) (path string, err error) {
	path = filepath.Join(b.dir, "."+name+".lock."+rand.Text()+ours)
	if err := write(path, data); err != nil {
		return "", fmt.Errorf("file %s for lock %s wasn't written: %w", path, name, err)
	}
	return path, nil
}

// write creates a file, or leaves none.
func write(path string, data []byte) error {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if closed := f.Close(); err == nil {
		err = closed
	}
	if err != nil {
		_ = os.Remove(path)
	}
	return err
}

// Tests make these fail.
var (
	link     = os.Link
	exchange = swap
	remove   = os.Remove
)

// create makes the lock file of a name in one step. It reports false if there is one.
func (b *Backend) create(name string, data []byte) (bool, error) {
	temp, err := b.temp(name, data)
	if err != nil {
		return false, err
	}
	defer os.Remove(temp)
	err = link(temp, b.path(name))
	if err != nil && noLinks(err) {
		err = write(b.path(name), data)
	}
	if errors.Is(err, fs.ErrExist) {
		// On NFS the reply of a link that was made can be lost.
		now, err := read(b.path(name), name)
		return now != nil && bytes.Equal(now.data, data), err
	}
	if err != nil {
		return false, fmt.Errorf("lock file %s wasn't created: %w", b.path(name), err)
	}
	return true, nil
}

// replace puts new content in the place of the lock file that the caller has seen, if the file
// in place satisfies old at the moment of the replacement. It reports false if it doesn't.
// The caller has the flock.
func (b *Backend) replace(name string, data []byte, old func(*file) bool) (bool, error) {
	temp, err := b.temp(name, data)
	if err != nil {
		return false, err
	}
	path := b.path(name)
	err = exchange(temp, path)
	if err == nil {
		ok, err := b.settleSwap(name, temp, data, old)
		if err == nil { // otherwise it can be the lock of another holder
			_ = os.Remove(temp)
		}
		return ok, err
	}
	defer os.Remove(temp)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return false, nil
	case noSwap(err):
		return b.overwrite(name, temp, old)
	default:
		return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
	}
}

// settleSwap looks at the file that a swap got, and puts another program's back. Before it is
// back that program can remove what it takes for its lock, and a third can create one: then
// the swap gets that third lock, which goes back too. So the swaps end when they get what they
// put in.
func (b *Backend) settleSwap(name, temp string, data []byte, old func(*file) bool) (bool, error) {
	path := b.path(name)
	got, err := read(temp, name)
	if err != nil || got == nil {
		return false, fmt.Errorf("the file that was replaced by lock file %s can't be read: %w",
			path, cmp.Or(err, fs.ErrNotExist))
	}
	if old(got) {
		return true, nil
	}
	for in := data; ; {
		put := got.data
		err := exchange(temp, path)
		if errors.Is(err, fs.ErrNotExist) { // it was removed in the meantime
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("lock file %s has replaced that of another holder, which can't be put back: %w", path, err)
		}
		if got, err = read(temp, name); err != nil || got == nil {
			return false, fmt.Errorf("the file that lock file %s has replaced can't be read: %w",
				path, cmp.Or(err, fs.ErrNotExist))
		}
		// A script's heartbeat can have changed ours.
		if bytes.Equal(got.data, in) || sameHandle(got, data, name) {
			return false, nil
		}
		in = put
	}
}

// overwrite is replace for systems that can't swap files.
func (b *Backend) overwrite(name, temp string, old func(*file) bool) (bool, error) {
	path := b.path(name)
	now, err := read(path, name)
	if err != nil {
		return false, err
	}
	if now == nil || !old(now) {
		return false, nil
	}
	if err := os.Rename(temp, path); err != nil {
		return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
	}
	return true, nil
}

// rivals returns the temporary files of other programs that are about to become the lock of a
// name: those of a script's acquisition and of a script's heartbeat. A file whose request is
// stale can't: its program has ended. One that can't be read is taken to have the default ttl.
func (b *Backend) rivals(name string) ([]*file, error) {
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	}
	var live []*file
	for _, e := range entries {
		if !strings.HasPrefix(e.Name(), name+".lock.") || !strings.HasSuffix(e.Name(), ".tmp") {
			continue
		}
		f, err := read(filepath.Join(b.dir, e.Name()), name)
		if err != nil {
			return nil, err
		}
		now := b.opts.Clock.Now()
		switch {
		case f == nil:
		case f.record != nil && f.record.stale(now):
		case f.record == nil && now.Sub(f.modified) > DefaultTTL:
		default:
			live = append(live, f)
		}
	}
	return live, nil
}
