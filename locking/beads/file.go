package beads

import (
	"bytes"
	"cmp"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

const (
	tempPrefix = Key + ".repolock-"
	tempSuffix = ".tmp"
)

func (b *Backend) temp() string {
	return filepath.Join(b.dir, tempPrefix+rand.Text()+tempSuffix)
}

// own is a lock file that this Backend has created. It stays open, so that no other file can get its inode number.
type own struct {
	*lockfile.File
	changed int64 // lockfile.Changed when TryLock verified the file
	gone    bool  // the lock is known to be lost
}

// link creates the complete lock file in one step. It returns nil if the file exists.
func (b *Backend) link() (*own, error) {
	body, err := json.MarshalIndent(b.record(), "", "  ")
	if err != nil {
		return nil, err
	}
	f, err := lockfile.Create(b.path, b.temp(), body, 0o644, link)
	if errors.Is(err, fs.ErrExist) {
		return nil, nil
	}
	return &own{File: f}, err
}

// verify returns ErrLost unless the lock file is still this file, with the content that we wrote.
func (o *own) verify() error {
	info, err := os.Lstat(o.Path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return o.lost("removed")
	case err != nil:
		return err
	case !os.SameFile(info, o.Info):
		return o.lost("replaced")
	}
	body, err := io.ReadAll(io.NewSectionReader(o.Open, 0, maxSize))
	if err != nil {
		return err
	}
	if !bytes.Equal(body, o.Body) {
		return o.lost("overwritten")
	}
	return nil
}

// untouched is verify, but also returns ErrLost if the file was changed and then changed back.
func (o *own) untouched() error {
	now, err := lockfile.Changed(o.Open)
	if err != nil {
		return err
	}
	if now != o.changed {
		return o.lost("changed")
	}
	return o.verify()
}

func (o *own) lost(how string) error {
	return fmt.Errorf("another program has %s %s: %w", how, o.Path, locking.ErrLost)
}

// unlink removes our lock file. It returns ErrLost if the lock file is another one.
func (b *Backend) unlink(mine *own) error {
	if err := mine.verify(); err != nil {
		return err
	}
	removed, err := b.remove(mine.File)
	if err == nil && !removed {
		err = mine.lost("replaced")
	}
	return err
}

// remove removes the lock file if it is still f, and reports whether it did. It renames the file, compares it, and
// renames it back if it isn't f.
func (b *Backend) remove(f *lockfile.File) (bool, error) {
	aside := b.temp()
	if err := os.Rename(b.path, aside); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	} else if err != nil {
		return false, err
	}
	now, err := lockfile.Read(aside, maxSize)
	if now != nil && now.Err == nil && os.SameFile(now.Info, f.Info) && bytes.Equal(now.Body, f.Body) {
		return true, os.Remove(aside)
	}
	return false, cmp.Or(err, putBack(aside, b.path))
}

// putBack gives a renamed file its name back. If another lock has the name by now, putBack leaves the file as it is.
func putBack(aside, path string) error {
	err := link(aside, path)
	if lockfile.NoLinks(err) {
		if _, there := os.Lstat(path); errors.Is(there, fs.ErrNotExist) {
			return os.Rename(aside, path)
		}
	}
	if err != nil {
		return fmt.Errorf("the lock %s of another program was moved to %s and can't be put back: end that program: %w",
			path, aside, err)
	}
	return os.Remove(aside)
}

// record is the JSON of the lock file. Readers ignore other fields.
type record struct {
	Holder    string    `json:"holder"`
	PID       int       `json:"pid"`
	Hostname  string    `json:"hostname"`
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
}

// record returns the record of a new lock.
func (b *Backend) record() record {
	return record{holder, os.Getpid(), b.host, b.opts.Clock.Now().UTC(), b.opts.Version}
}

// validate returns an error for a record that isn't a valid lock. It also refuses a pid that doesn't name a single
// process to kill(2): 0, a negative number, or a number of more than 32 bits.
func (r record) validate() error {
	switch {
	case r.Holder == "":
		return errors.New("it has no holder")
	case r.PID <= 0 || r.PID > math.MaxInt32:
		return fmt.Errorf("%d is no pid", r.PID)
	case r.Hostname == "":
		return errors.New("it has no hostname")
	case r.StartedAt.IsZero():
		return errors.New("it has no started_at")
	}
	return nil
}

// content is a lock file as it was at one moment. If it is Unreadable, the lock counts as held.
type content struct {
	*lockfile.File
	record record
}

// maxSize is the number of bytes that we read of a lock file.
const maxSize = 64 << 10

// read returns the lock file, or nil if there is none.
func (b *Backend) read() (*content, error) {
	f, err := lockfile.Read(b.path, maxSize)
	if f == nil && err == nil {
		_, err = os.Stat(b.dir) // if the directory is missing, the lock isn't free
	}
	if f == nil || err != nil {
		return nil, err
	}
	c := &content{File: f}
	switch {
	case errors.Is(f.Err, fs.ErrPermission):
		c.Unreadable = "this user can't read it"
	case f.Err != nil:
		return nil, f.Err
	case c.Unreadable == "":
		c.Unreadable = c.parse()
	}
	return c, nil
}

// parse parses the body, and returns why it is no lock, or "".
func (c *content) parse() string {
	err := json.Unmarshal(c.Body, &c.record)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		err = c.record.validate()
	case errors.As(err, &kind) && kind.Field != "":
		err = fmt.Errorf("its %s is a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		err = fmt.Errorf("it is a JSON %s, not an object", kind.Value)
	case json.Valid(c.Body): // encoding/json doesn't name the field
		err = fmt.Errorf("its started_at isn't a time of RFC 3339")
	}
	if err == nil {
		return ""
	}
	return text.Line("malformed: " + err.Error())
}

// stale reports whether the lock names an ended process of this machine. The record has no start time of the process,
// so Ended tests only whether kill(pid, 0) returns ESRCH.
func (b *Backend) stale(c *content) bool {
	return c.Unreadable == "" && b.here(c) && identity.Process{PID: c.record.PID}.Ended()
}

// here reports whether the lock names this machine.
func (b *Backend) here(c *content) bool { return strings.EqualFold(c.record.Hostname, b.host) }
