package towerfleet

import (
	"cmp"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// DefaultSettle is longer than the bash script takes from its look to the end of its mv.
const DefaultSettle = time.Second

// Options describe the execution that takes locks. The zero Options work.
type Options struct {
	// Actor, Intent and IntentVersion are shown to a process that finds the lock. They default to
	// "repolock", "command" and "0".
	Actor, Intent, IntentVersion string
	// HostID defaults to the host's name, and RequestID to req_ and random characters. The
	// request must be of this execution alone.
	HostID, RequestID string
	// Metadata is written into the lock file. It must not have a HandleField.
	Metadata map[string]any
	// Force steals a stale lock. A lock that isn't stale is never stolen.
	Force bool
	// Created, if set, is called by New with a lock directory that it has created: the locks there
	// exclude no program that uses another directory.
	Created func(dir string)
	// Mode is the intent's mode. With Observe nothing is locked, created or written.
	Mode Mode
	// Settle is how long an acquirer waits before it looks whether a program that takes no
	// flock has replaced its lock. It is at most a third of the ttl. It defaults to
	// DefaultSettle; a negative Settle looks at once, which is enough if only repolocks
	// share the directory.
	Settle time.Duration
	// Clock defaults to the machine's.
	Clock locking.Clock
	// Audit is called with each event, which marshals to the specification's JSON. It must not
	// call the Backend, and can be called concurrently.
	Audit func(event any)
}

// HandleField is the field of a lock file's metadata that distinguishes two locks of one request.
const HandleField = "repolock_handle"

// Backend keeps the locks of a directory. Its methods can be called concurrently. Another
// process of the directory that is stopped in a critical section delays them until the context
// ends, or for flock.Patience.
type Backend struct {
	dir  string
	opts Options

	mu   sync.Mutex
	held map[string]*holding // by token
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
)

// holding is what a Backend knows of a lock that it has.
type holding struct {
	mu                sync.Mutex    // of a renewal or a release
	acquired, renewed time.Duration // of the clock's Elapsed
	failures          int           // consecutive intervals without a heartbeat
	failed            time.Duration // when the last of failures was counted, of the clock's Elapsed
	lost              bool
	// rival is the temporary file of a request that believes it has the lock too, rivalSince
	// when a heartbeat first saw that file.
	rival      string
	rivalSince time.Duration
}

// New returns the backend of a lock directory. It creates a missing one with mode 0700 and calls
// Options.Created, but it creates no parent. It returns locking.ErrUnfit if the parent is missing or has
// locks of its own, and for a directory that another user owns, reads, writes or searches (section 12.1), or that can't be locked by flock. An observing intent creates nothing.
func New(dir string, opts Options) (b *Backend, err error) {
	defer lockfile.Classify(&err)
	host, _ := os.Hostname()
	opts.Actor = cmp.Or(opts.Actor, "repolock")
	opts.Intent = cmp.Or(opts.Intent, "command")
	opts.IntentVersion = cmp.Or(opts.IntentVersion, "0")
	opts.HostID = cmp.Or(opts.HostID, host, "localhost")
	opts.RequestID = cmp.Or(opts.RequestID, "req_"+strings.ToLower(rand.Text()))
	opts.Settle = cmp.Or(opts.Settle, DefaultSettle)
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if _, _, err := opts.Mode.Lock("any"); err != nil {
		return nil, err
	}
	if !requestFormat.MatchString(opts.RequestID) {
		return nil, fmt.Errorf("request id %q: use 1 to 128 letters, digits, dots, underscores, colons and hyphens, "+
			"with a letter or digit first", text.Cut(opts.RequestID, 140))
	}
	if _, err := json.Marshal(opts.Metadata); err != nil {
		return nil, fmt.Errorf("the metadata of the lock is no JSON: %w", err)
	}
	if _, ours := opts.Metadata[HandleField]; ours {
		return nil, fmt.Errorf("the metadata of the lock has the field %s, which is written by this package: rename it", HandleField)
	}
	b = &Backend{dir: dir, opts: opts, held: map[string]*holding{}}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Backend) path(name string) string { return filepath.Join(b.dir, name+".lock") }

// Interval is the interval of heartbeats for a ttl: a third of it (section 5.2), and at most the
// 30 seconds that the specification recommends.
func Interval(ttl time.Duration) time.Duration { return min(ttl/3, 30*time.Second) }
