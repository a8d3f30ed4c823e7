package beads

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
)

// record is the JSON of the lock file. A reader ignores other fields.
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

// validate refuses, among others, a pid that doesn't name a single process to kill(2): 0, a negative
// number, or one of more than 32 bits.
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

// content is a lock file at one moment. If it has Trouble, the lock is held.
type content struct {
	*lockfile.File
	record record
}

// maxSize bounds the bytes of a lock file that are read.
const maxSize = 64 << 10

// read returns the lock file, or nil if there is none.
func (b *Backend) read() (*content, error) {
	f, err := lockfile.Read(b.path, maxSize)
	if f == nil && err == nil {
		_, err = os.Stat(b.dir) // without its directory, the lock isn't free
	}
	if f == nil || err != nil {
		return nil, err
	}
	c := &content{File: f}
	switch {
	case errors.Is(f.Err, fs.ErrPermission):
		c.Trouble = "this user can't read it"
	case f.Err != nil:
		return nil, f.Err
	case c.Trouble == "":
		c.Trouble = c.parse()
	}
	return c, nil
}

// parse returns why the body is no lock, or "".
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

// stale reports whether the lock names an ended process of this machine. Ended tests kill(pid, 0) for
// ESRCH alone, because the process has no start time.
func (b *Backend) stale(c *content) bool {
	return c.Trouble == "" && strings.EqualFold(c.record.Hostname, b.host) &&
		identity.Process{PID: c.record.PID}.Ended()
}
