package towerfleet

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
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
	// Metadata is written into the lock file. The field repolock_handle is our own.
	Metadata map[string]any
	// Force steals a stale lock. A lock that isn't stale is never stolen.
	Force bool
	// Mode is the intent's mode. With Observe nothing is locked, created or written.
	Mode Mode
	// Settle is how long an acquirer waits before it looks whether a program that takes no
	// flock has replaced its lock. It is at most a third of the ttl. It defaults to
	// DefaultSettle; a negative Settle looks at once, which is enough if only repolocks
	// share the directory.
	Settle time.Duration
	// Clock defaults to the machine's.
	Clock clock.Clock
	// Audit is called with each event, which marshals to the specification's JSON. It must not
	// call the Backend, and can be called concurrently. See AuditTo.
	Audit func(event any)
}

// Backend keeps the locks of a directory. Its methods can be called concurrently. Another
// process of the directory that is stopped in a critical section delays them until the context
// ends, or for flockPatience.
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
	acquired, renewed time.Duration // of the clock's Elapsed
	failures          int           // consecutive, of heartbeats
	lost              bool
}

// New returns the backend of a lock directory. It creates a missing one with mode 0700, and
// refuses one that any but its owner can read, write or search (section 12.1).
func New(dir string, opts Options) (*Backend, error) {
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
		return nil, fmt.Errorf("request id %q: use 1 to 128 letters, digits, dots, underscores, colons and hyphens, with a letter or digit first", opts.RequestID)
	}
	if _, err := json.Marshal(opts.Metadata); err != nil {
		return nil, fmt.Errorf("the metadata of the lock is no JSON: %w", err)
	}
	b := &Backend{dir: dir, opts: opts, held: map[string]*holding{}}
	return b, b.prepare()
}

// prepare creates and checks the directory.
func (b *Backend) prepare() error {
	if !hasFlock {
		return fmt.Errorf("lock directory %s can't be used: this system has no flock", b.dir)
	}
	if b.opts.Mode != Observe {
		if err := os.MkdirAll(b.dir, 0o700); err != nil {
			return fmt.Errorf("lock directory %s can't be created: %w", b.dir, err)
		}
	}
	info, err := os.Stat(b.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist) && b.opts.Mode == Observe:
		return nil
	case err != nil:
		return fmt.Errorf("lock directory %s can't be read: %w", b.dir, err)
	case !info.IsDir():
		return fmt.Errorf("lock directory %s is no directory", b.dir)
	case info.Mode().Perm() != 0o700:
		return fmt.Errorf("lock directory %s has mode %04o, so others can see or change its locks: run chmod 700 on it once you know who uses it",
			b.dir, info.Mode().Perm())
	}
	f, err := os.Open(b.dir)
	if err != nil {
		return fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	defer f.Close()
	if _, err := tryFlock(f); err != nil {
		return fmt.Errorf("lock directory %s can't be locked by flock: put it on a local file system: %w", b.dir, err)
	}
	return nil
}

// flockPatience bounds the wait for another process's critical section, which takes
// milliseconds.
const flockPatience = 10 * time.Second

// exclusive takes the flock of the directory.
func (b *Backend) exclusive(ctx context.Context) (unlock func(), err error) {
	f, err := os.Open(b.dir)
	if err != nil {
		return nil, fmt.Errorf("lock directory %s can't be opened: %w", b.dir, err)
	}
	end := b.opts.Clock.Elapsed() + flockPatience
	for pause := time.Millisecond; ; pause = min(2*pause, 20*time.Millisecond) {
		ok, err := tryFlock(f)
		if ok {
			return func() { f.Close() }, nil // which unlocks it
		}
		if err == nil && b.opts.Clock.Elapsed() < end {
			err = clock.Sleep(ctx, b.opts.Clock, pause)
			if err == nil {
				continue
			}
		}
		f.Close()
		return nil, fmt.Errorf("the flock on lock directory %s wasn't free, nothing was done: look which process stands still (lslocks): %w",
			b.dir, cmp.Or(err, context.DeadlineExceeded))
	}
}

func (b *Backend) path(name string) string { return filepath.Join(b.dir, name+".lock") }

// Interval is the interval of heartbeats for a ttl: a third of it (section 5.2), and at most the
// 30 seconds that the specification recommends.
func Interval(ttl time.Duration) time.Duration { return min(ttl/3, 30*time.Second) }
