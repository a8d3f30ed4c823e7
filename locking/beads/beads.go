// Package beads holds the exclusive lock of a beads database: the file .exclusive-lock in the .beads directory, as
// EXCLUSIVE_LOCK of beads defines it. While a valid lock is there, the daemon of bd v0.17.7 to v0.49.6 skips the
// database. No other version of bd looks at the file. A server of another author can do the same by [Skip].
//
// In a worktree the file redirect names the .beads directory of the main repository. The lock is there: see [Database].
//
// # The file
//
// It is a JSON object with holder, pid, hostname, started_at and version. A lock is stale if its hostname is this
// machine's, ignoring case, and kill(pid, 0) returns ESRCH. A zombie is a living process, and so is a process of
// another user, for which kill returns EPERM. A lock of another host is held, and so is a file that can't be parsed.
// The format has no ttl: a lock lasts until its process ends. The ttl of TryLock has no effect.
//
// If a holder is killed and the system gives its pid to another process, the lock stays held until that process ends.
//
// # Between users of this package
//
// The format itself doesn't exclude two tools. This package excludes its own users:
//
//   - TryLock links a complete file to the name. That fails if the name exists. Then TryLock verifies
//     that the file there is its own.
//   - TryLock removes a stale lock under the flock of the .beads directory, so that it never removes a
//     newer lock of another user of this package. On a file system without flock (NFS) a stale lock
//     stays held until Break removes it. The daemon doesn't remove it either: up to v0.49.6 it treats
//     every ended process as a living one. Open refuses a system without flock (Windows).
//   - A removal renames the file, compares it, and renames it back if it is another lock's.
//   - The handle keeps its file open, so that no other file can get its inode number. Renew, Resume and
//     Release compare inode and content.
//
// # Together with other tools
//
// A tool that calls os.WriteFile, as the document's example does, overwrites any lock, and its os.Remove removes any
// lock. Both tools run until our next Renew, which returns ErrLost. A tool that writes into our file in the
// microseconds between our comparison and our removal loses its lock. If a third tool locks while we compare a renamed
// file, we can't rename that file back. It stays as .exclusive-lock.repolock-*.tmp until Cleanup removes it after a
// day.
//
// The daemon removes a stale lock by its name. If it has read a stale lock, and TryLock replaces that before the daemon
// removes it, the daemon removes the new lock. Therefore TryLock checks its file after 100 ms. If the daemon is slower,
// it removes a held lock, and the next Renew returns ErrLost.
//
// A sync cycle that runs when the lock is created goes on to its end.
//
// Containers that share a directory must have different hostnames: otherwise a process of another container seems to
// have ended.
package beads

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/lockfile"
	"github.com/repolock/repolock/locking"
)

// Key is the only key, because a database has only one lock. It is the name of the lock's file.
const Key = ".exclusive-lock"

// holder is the name of this program in the lock file.
const holder = "repolock"

// Options are the options of a Backend. The zero value suits most programs.
type Options struct {
	// Version is the version of the program. It is written into the file.
	Version string
	// Replaced, if set, is called when TryLock has removed a stale lock, with its description.
	Replaced func(*locking.Info)
	// Clock defaults to the machine's.
	Clock locking.Clock
}

// Backend is a locking.Backend, Inspector, Breaker, Resumer and Examiner. Its methods can be called concurrently. They
// check their contexts between system calls. They return locking.ErrPermission if the file system refuses this user.
type Backend struct {
	named     string // the directory that Open was called with
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
	_ locking.Examiner  = (*Backend)(nil)
)

// Open returns the backend of a database. dir is its .beads directory, which must exist, or a .beads directory that
// redirects to it (see Database). Open returns locking.ErrUnfit if dir or this system can't have locks.
func Open(dir string, opts Options) (b *Backend, err error) {
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
	named := dir
	if dir, err = Database(named); err != nil {
		return nil, err
	}
	host, err := hostname()
	if err != nil || host == "" {
		return nil, fmt.Errorf("%w: this machine's hostname is unknown, and the lock in %s needs it: %v", locking.ErrUnfit, dir, err)
	}
	opts.Clock = cmp.Or[locking.Clock](opts.Clock, clock.System{})
	return &Backend{named: named, dir: dir, path: filepath.Join(dir, Key), host: host, opts: opts, held: make(map[string]*own)}, nil
}

func (b *Backend) check(ctx context.Context, key string) error {
	if key != Key {
		return fmt.Errorf("%w: %q: a beads database has only the lock %q", locking.ErrKey, key, Key)
	}
	return ctx.Err()
}

// These are variables for tests.
var (
	tryFlock = flock.Try
	hostname = os.Hostname
	link     = os.Link
)

// flock takes the flock of the directory, which excludes the other users of this package. exclusive is false on a file
// system without flock.
func (b *Backend) flock(ctx context.Context) (unlock func(), exclusive bool, err error) {
	return flock.Dir(ctx, b.opts.Clock, b.dir, tryFlock)
}

// Scheme is the scheme of a URL beads:DIR.
const Scheme = "beads"

// Target is a database that a URL names.
type Target struct {
	// Dir is the absolute path of the .beads directory.
	Dir string
}

// Parse parses beads:DIR. If DIR isn't called .beads, the database is DIR/.beads. A relative DIR begins
// at the working directory. Parse reads no file. It takes characters literally, and refuses ?, # and
// characters that aren't printable.
func Parse(raw string) (Target, error) {
	scheme, dir, ok := strings.Cut(raw, ":")
	switch {
	case !ok || !strings.EqualFold(scheme, Scheme):
		return Target{}, invalid("it must begin with beads:")
	case dir == "":
		return Target{}, invalid("it has no directory: write beads:DIR")
	case strings.HasPrefix(dir, "//"):
		return Target{}, invalid("it has no host: write beads:/DIR")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return Target{}, invalid("the working directory is unknown: %v", err)
	}
	if i := strings.IndexAny(dir, "?#"); i >= 0 {
		return Target{}, invalid("its directory has a %q in its name: use a symbolic link", dir[i:i+1])
	}
	if !utf8.ValidString(dir) || strings.ContainsFunc(dir, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return Target{}, invalid("its directory has a name that isn't printable: use a symbolic link")
	}
	if filepath.Base(dir) != ".beads" {
		dir = filepath.Join(dir, ".beads")
	}
	return Target{dir}, nil
}

// String returns the URL with the absolute path. Parse returns t for it.
func (t Target) String() string { return Scheme + ":" + t.Dir }

func invalid(format string, args ...any) error {
	return fmt.Errorf("invalid beads URL: "+format, args...)
}
