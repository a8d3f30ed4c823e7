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

// file is a lock file, or a temporary file of a script.
type file struct {
	*lockfile.File
	record *record // nil if there is Trouble
}

// read returns the lock file of a name, or nil if there is none. A file that isn't a valid lock has
// Trouble.
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

// isHeartbeat reports whether a file is a script's next heartbeat, which its mv renames to the lock.
func (f *file) isHeartbeat() bool { return strings.HasSuffix(f.Path, ".lock.heartbeat.tmp") }

func (f *file) same(other *file) bool { return bytes.Equal(f.Body, other.Body) }

// revision returns the file's hash. If the file can't be read, it hashes its name, size and time too.
func (f *file) revision() string {
	if f.record != nil {
		return hash(f.Body)
	}
	return hash(fmt.Appendf(nil, "%s\x00%s\x00%d\x00%d\x00%s", f.Path, f.Trouble, f.Info.Size(), f.Info.ModTime().UnixNano(), f.Body))
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return "sha256:" + hex.EncodeToString(sum[:])
}

// ours ends the names of this package's temporary files, so that the script's *.lock doesn't match them.
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

// replace replaces the lock file by one with data, if old is true of the lock file at the moment of the
// replacement. Otherwise it reports false. The caller has the flock.
//
// replace swaps the lock file and a new file, and looks at the file that it got. If old isn't true of
// that, it belongs to another program, and replace swaps again. Between the two swaps the other program
// can have removed the lock file, and a third one can have created its own. So replace swaps until it
// gets the file that its last swap has put there.
func (b *Backend) replace(name string, data []byte, old func(*file) bool) (ok bool, err error) {
	path, temp := b.path(name), b.temp(name)
	f, err := lockfile.Write(temp, data, 0o600)
	if err != nil {
		return false, fmt.Errorf("file %s for lock %s wasn't written: %w", temp, name, err)
	}
	f.Open.Close()
	var got *file // the file that the last swap got; it is in temp
	defer func() {
		if got == nil || err == nil { // otherwise temp can be another holder's lock
			_ = os.Remove(temp)
		}
	}()
	for put := data; ; {
		err := exchange(temp, path)
		switch {
		case errors.Is(err, fs.ErrNotExist): // another program has removed it
			return false, nil
		case err != nil && got != nil:
			return false, fmt.Errorf("lock file %s has replaced another holder's, which can't be put back from %s: %w", path, temp, err)
		case err != nil && noSwap(err):
			return b.overwrite(name, temp, old)
		case err != nil:
			return false, fmt.Errorf("lock file %s wasn't replaced: %w", path, err)
		}
		last := got
		if got, err = read(temp, name); err != nil || got == nil {
			got = &file{}
			return false, fmt.Errorf("lock file %s has replaced %s, which can't be read: %w", path, temp, cmp.Or(err, fs.ErrNotExist))
		}
		switch {
		case last == nil && old(got):
			return true, nil
		case last == nil:
		case bytes.Equal(got.Body, put), sameHandle(got, data, name): // a script can have written a heartbeat into ours
			return false, nil
		default:
			put = last.Body
		}
	}
}

// noSwap reports whether the system or the file system can't swap files.
func noSwap(err error) bool {
	return errors.Is(err, errors.ErrUnsupported) || errors.Is(err, syscall.EINVAL)
}

// overwrite is replace without a swap.
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

// rivals returns the temporary files that a script is about to rename to the lock file of a handle: for
// an acquisition or a heartbeat. It leaves out a file whose request is stale, because its script has
// ended, a file that can't be read and is older than DefaultTTL, and a heartbeat of the handle itself.
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
