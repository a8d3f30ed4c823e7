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
	// HostID defaults to the hostname. RequestID defaults to req_ and random characters; no two
	// executions may have the same.
	HostID, RequestID string
	// Metadata is written into the lock file. It must not have a HandleField.
	Metadata map[string]any
	// Force steals a stale lock. A lock that isn't stale is never stolen.
	Force bool
	// Created, if set, is called by New when it has created the lock directory. No program that
	// uses another directory sees the locks there.
	Created func(dir string)
	// Observe is for an intent of mode observe: nothing is locked, created or written.
	Observe bool
	// Settle is how long TryLock waits before it checks whether a program that takes no flock has
	// replaced its lock, but at most a third of the ttl. It defaults to DefaultSettle. A negative
	// Settle checks at once, which is enough if all programs of the directory use this package.
	Settle time.Duration
	// Clock defaults to the machine's.
	Clock locking.Clock
	// Audit, if set, is called with each event, which marshals to the specification's JSON. It must
	// not call the Backend, and can be called concurrently.
	Audit func(event any)
}

// HandleField is the field of a lock file's metadata that distinguishes two locks of one request.
const HandleField = "repolock_handle"

// Backend keeps the locks of a directory. Its methods can be called concurrently. If another process is
// stopped while it has the directory's flock, they wait for it until their context ends, or for
// flock.Patience.
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

// holding is the state of a held lock. Its times are on the clock's Elapsed.
type holding struct {
	mu                sync.Mutex // held during a renewal or a release
	acquired, renewed time.Duration
	failures          int           // consecutive intervals without a heartbeat
	failed            time.Duration // when the last of failures was counted
	lost              bool
	// rival is the temporary file of a request that perhaps believes that it has the lock too.
	// rivalSince is when a renewal first saw this file.
	rival      string
	rivalSince time.Duration
}

// New returns the backend of a lock directory. It creates a missing directory with mode 0700, but no
// parent. It returns locking.ErrUnfit if the parent is missing or has locks of its own, if another user
// owns the directory or has any permission for it (section 12.1), or if flock can't lock the directory.
func New(dir string, opts Options) (b *Backend, err error) {
	defer lockfile.Classify(&err)
	host, _ := os.Hostname()
	opts.Actor = cmp.Or(opts.Actor, "repolock")
	opts.Intent = cmp.Or(opts.Intent, "command")
	opts.IntentVersion = cmp.Or(opts.IntentVersion, "0")
	opts.HostID = cmp.Or(opts.HostID, host, "localhost")
	opts.RequestID = cmp.Or(opts.RequestID, "req_"+strings.ToLower(rand.Text()))
	opts.Settle = cmp.Or(opts.Settle, DefaultSettle)
	opts.Clock = cmp.Or[locking.Clock](opts.Clock, clock.System{})
	if !requestFormat.MatchString(opts.RequestID) {
		return nil, fmt.Errorf("request id %q: use 1 to 128 letters, digits, dots, underscores, colons and hyphens, "+
			"with a letter or digit first", text.Cut(opts.RequestID, 140))
	}
	if _, err := json.Marshal(opts.Metadata); err != nil {
		return nil, fmt.Errorf("the metadata of the lock can't be written as JSON: %w", err)
	}
	if _, ours := opts.Metadata[HandleField]; ours {
		return nil, fmt.Errorf("the metadata of the lock has the field %s, which repolock writes itself: rename it", HandleField)
	}
	b = &Backend{dir: dir, opts: opts, held: map[string]*holding{}}
	if err := b.prepare(); err != nil {
		return nil, err
	}
	return b, nil
}

func (b *Backend) path(name string) string { return filepath.Join(b.dir, name+".lock") }

// interval returns the interval of heartbeats: a third of the ttl (section 5.2), but at most the 30
// seconds that the specification recommends.
func interval(ttl time.Duration) time.Duration { return min(ttl/3, 30*time.Second) }
