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

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Key is the only key, because a database has only one lock. It is the name of the lock's file.
const Key = ".exclusive-lock"

// holder is the name of this program in the file.
const holder = "repolock"

// Options of a Backend. The zero value suits most programs.
type Options struct {
	// Version is the version of the program, in the file.
	Version string
	// Clock defaults to the machine's.
	Clock locking.Clock
}

// Backend is a locking.Backend, Inspector, Breaker and Resumer. Its methods can be called
// concurrently. They heed their contexts between system calls. Their errors are
// locking.ErrPermission if the file system refuses this user.
type Backend struct {
	dir, path string // the database and its lock
	host      string // this machine's hostname
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

// New returns the backend of a database. dir is its .beads directory, which must exist. The error is
// locking.ErrUnfit if dir or this system can't have locks.
func New(dir string, opts Options) (b *Backend, err error) {
	defer lockfile.Classify(&err)
	if dir, err = filepath.Abs(dir); err != nil {
		return nil, err
	}
	if !flock.Supported {
		return nil, fmt.Errorf("%w: this system has no flock, so %s can't be locked", locking.ErrUnfit, dir)
	}
	const advice = "name a directory with a beads database, or its .beads directory"
	switch info, err := os.Stat(dir); {
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR):
		return nil, fmt.Errorf("%w: %s doesn't exist: %s", locking.ErrUnfit, dir, advice)
	case err != nil:
		return nil, err
	case !info.IsDir():
		return nil, fmt.Errorf("%w: %s isn't a directory: %s", locking.ErrUnfit, dir, advice)
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return nil, fmt.Errorf("%w: this machine's hostname is unknown, and the lock in %s needs it: %v", locking.ErrUnfit, dir, err)
	}
	opts.Clock = cmp.Or[locking.Clock](opts.Clock, clock.System{})
	return &Backend{dir: dir, path: filepath.Join(dir, Key), host: host, opts: opts, held: make(map[string]*own)}, nil
}

func (b *Backend) check(ctx context.Context, key string) error {
	if key != Key {
		return fmt.Errorf("%w: %q: a beads database has only the lock %q", locking.ErrKey, key, Key)
	}
	return ctx.Err()
}

// tryFlock is a variable for tests.
var tryFlock = flock.Try

// flock takes the flock of the directory, and so excludes the other users of this package. exclusive is
// false on a file system without flock.
func (b *Backend) flock(ctx context.Context) (unlock func(), exclusive bool, err error) {
	return flock.Dir(ctx, b.opts.Clock, b.dir, tryFlock)
}
