package beads

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
)

// record is the file's JSON. Other fields are ignored.
type record struct {
	Holder    string    `json:"holder"`
	PID       int       `json:"pid"`
	Hostname  string    `json:"hostname"`
	StartedAt time.Time `json:"started_at"`
	Version   string    `json:"version"`
}

// record returns that of a new lock.
func (b *Backend) record() record {
	return record{b.opts.Holder, b.opts.PID, b.host, b.opts.Clock.Now().UTC(), b.opts.Version}
}

// validate refuses a pid that names no process to kill(2): 0, negative numbers and those that
// its 32 bits don't hold.
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

// content is a lock file at one moment.
type content struct {
	info   fs.FileInfo
	body   []byte
	record record
	// trouble is why the file can't be read or parsed, in one line. Such a lock is held.
	trouble string
	// unreadable is set if this user can't read the file.
	unreadable error
	// moved is set if the name had another file, or none, while it was read.
	moved bool
}

// maxSize is far above the size of a lock. A larger file isn't read.
const maxSize = 64 << 10

// read returns the lock file, or nil if there is none. It tries again if the file is replaced
// meanwhile.
func (b *Backend) read() (c *content, err error) {
	for range maxTries {
		if c, err = b.readOnce(); c == nil || err != nil || !c.moved {
			break
		}
	}
	return c, err
}

func (b *Backend) readOnce() (*content, error) {
	info, err := os.Lstat(b.path)
	if errors.Is(err, fs.ErrNotExist) {
		_, err := os.Stat(b.dir) // without its directory, nothing is free
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return readFile(b.path, info)
}

// readFile reads the file that has this info. If the name has another one meanwhile, there is
// still a lock, in trouble.
func readFile(path string, info fs.FileInfo) (*content, error) {
	c := &content{info: info}
	if !info.Mode().IsRegular() {
		c.trouble = "it is no regular file"
		return c, nil
	}
	f, err := os.OpenFile(path, os.O_RDONLY|nonblock, 0)
	if err != nil {
		switch {
		case errors.Is(err, fs.ErrPermission):
			c.trouble, c.unreadable = "this user can't read it", err
		case errors.Is(err, fs.ErrNotExist):
			c.trouble, c.moved = "it was removed while it was read", true
		default:
			return nil, err
		}
		return c, nil
	}
	defer f.Close()
	if now, err := f.Stat(); err != nil || !os.SameFile(info, now) {
		c.trouble, c.moved = "it was replaced while it was read", true
		return c, err
	}
	if c.body, err = io.ReadAll(io.LimitReader(f, maxSize+1)); err != nil {
		return nil, err
	}
	if len(c.body) > maxSize {
		c.trouble = fmt.Sprintf("it is larger than %d bytes", maxSize)
		return c, nil
	}
	c.trouble = c.parse()
	return c, nil
}

// parse returns why the body is no lock, or "".
func (c *content) parse() string {
	err := json.Unmarshal(c.body, &c.record)
	var kind *json.UnmarshalTypeError
	switch {
	case err == nil:
		err = c.record.validate()
	case errors.As(err, &kind) && kind.Field != "":
		err = fmt.Errorf("its %s is a JSON %s", kind.Field, kind.Value)
	case errors.As(err, &kind):
		err = fmt.Errorf("it is a JSON %s, and no object", kind.Value)
	case json.Valid(c.body): // encoding/json doesn't name the field
		err = fmt.Errorf("its started_at is no time of RFC 3339")
	}
	if err == nil {
		return ""
	}
	return text.Line("malformed: " + err.Error())
}

// stale reports whether the process that the lock names is one of this machine and has ended.
// Without its start time, Ended is kill(pid, 0) with ESRCH.
func (b *Backend) stale(c *content) bool {
	return c.trouble == "" && strings.EqualFold(c.record.Hostname, b.host) &&
		identity.Process{PID: c.record.PID}.Ended()
}
