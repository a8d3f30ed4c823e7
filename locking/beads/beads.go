package beads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Key is the only key: a database has one lock. It is the name of its file.
const Key = ".exclusive-lock"

// Options of a Backend. The zero value suits most programs.
type Options struct {
	// Holder and Version name the program in the file; "repolock" and none if they are empty.
	Holder, Version string
	// PID is the process that lives as long as the lock; this one if it is 0. TryLock refuses,
	// and the lock is lost, if that process has ended.
	PID int
	// Settle is how long TryLock waits while it has the lock, so that a sync cycle that has
	// begun before completes. It must be longer than a cycle. The caller's context, and a
	// deadline that it counts from its call, must be longer than Settle.
	Settle time.Duration
	// Clock dates the locks and times the waits; the machine's if it is nil.
	Clock locking.Clock
}

// Backend is a locking.Backend, Inspector, Breaker and Resumer. Its methods can be called
// concurrently. They look at their contexts between system calls. Their errors are
// locking.ErrPermission if the file system refuses this user.
type Backend struct {
	dir, path string // of the database and of its lock
	host      string
	opts      Options

	mu   sync.Mutex
	held map[string]*own // by the handle's token
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Resumer   = (*Backend)(nil)
)

// New returns the backend of a database. dir is its .beads directory, which must exist. The
// error is locking.ErrUnfit if dir or this system can't keep a lock.
func New(dir string, opts Options) (b *Backend, err error) {
	defer lockfile.Classify(&err)
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if !flock.Supported {
		return nil, fmt.Errorf("%w: this system has no flock, so %s can't be locked", locking.ErrUnfit, dir)
	}
	if opts.Settle < 0 {
		return nil, fmt.Errorf("the settle time must not be negative, as %v is", opts.Settle)
	}
	const advice = "name a directory with a beads database, or its .beads directory"
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: %s doesn't exist: %s", locking.ErrUnfit, dir, advice)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s is no directory: %s", locking.ErrUnfit, dir, advice)
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return nil, fmt.Errorf("%w: the hostname of this machine, which the lock in %s must have, is unknown: %v",
			locking.ErrUnfit, dir, err)
	}
	opts.Holder = cmp.Or(opts.Holder, "repolock")
	opts.PID = cmp.Or(opts.PID, os.Getpid())
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	b = &Backend{dir: dir, path: filepath.Join(dir, Key), host: host, opts: opts, held: make(map[string]*own)}
	if err := b.record().validate(); err != nil {
		return nil, fmt.Errorf("the lock %s can't be written: %w", b.path, err)
	}
	return b, nil
}

func (b *Backend) check(ctx context.Context, key string) error {
	if key != Key {
		return fmt.Errorf("%w: %q: a beads database has the lock %q alone", locking.ErrKey, key, Key)
	}
	return ctx.Err()
}

// ended returns an error if the process that our locks name has ended.
func (b *Backend) ended() error {
	if (identity.Process{PID: b.opts.PID}).Ended() {
		return fmt.Errorf("process %d, which the lock %s names, has ended", b.opts.PID, b.path)
	}
	return nil
}

// tryFlock is a variable for tests.
var tryFlock = flock.Try

// flock takes the flock of the directory, which excludes the other users of this package on this
// machine. exclusive is false on a file system that has no flock.
func (b *Backend) flock(ctx context.Context) (unlock func(), exclusive bool, err error) {
	return flock.Dir(ctx, b.opts.Clock, b.dir, tryFlock)
}
