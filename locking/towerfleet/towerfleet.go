// Package towerfleet keeps locks in the format of the specification tower-fleet/lock/v1: a JSON file
// NAME.lock for each lock, in a directory of mode 0700. A holder creates the file, writes heartbeats into
// it, and removes it. If the heartbeat is older than the ttl, the lock is stale. A stale lock stays held
// until a client with Options.Force steals it. The pid in the file decides nothing.
//
// # Among users of this package
//
// Two users of this package never both have a lock, unless their wall clocks differ by the ttl. Each
// looks at a lock file and then writes, steals or removes it while it has the flock of the directory.
// A lock file is complete when it appears, because it is a link(2) to a written and synced file. If the
// file system has no hard links, O_EXCL creates it, and a reader can see it half written. Such a file is
// malformed, and so the lock is held.
//
// # Together with the specification's bash script
//
// The script takes no flock. Therefore this package does three more things:
//
//   - TryLock creates the lock file, waits for Options.Settle, and looks again, because the script's
//     "mv -n" doesn't create a file atomically. GNU mv before 8.30 looks, and then renames over any file;
//     later versions can do the same if the file vanishes meanwhile. Except in coreutils 9.2 to 9.4, mv
//     also exits with 0 if it has moved nothing. In both cases the script believes that it has the lock.
//     But its temporary file NAME.lock.REQUEST.tmp exists until mv has moved it, and stays if mv moves
//     nothing. So if that file is there after Settle, TryLock renames it to the lock file, and is refused.
//   - A heartbeat swaps the new file with the lock file in one step (RENAME_EXCHANGE), and looks at the
//     file that it got. If another program has stolen the lock before the swap, the heartbeat swaps back.
//     A steal does the same. So there is always a lock file.
//   - A release writes a heartbeat first if the last one is old, so that no other program may steal the
//     lock before it is removed.
//
// # Limits
//
//   - If a script looks before our lock file exists, writes its temporary file after Settle, and its mv
//     exits with 0, it runs at the same time as our holder. Renew notices the file. Once it has been
//     there for Settle, Renew gives the lock to the script and returns locking.ErrLost. Two scripts can
//     run at the same time in the same way, and neither notices it.
//   - The temporary file of a killed script blocks the lock until the request in it is stale, or for
//     DefaultTTL after its last change if it can't be read. If a script ends before Settle has passed,
//     and its mv has moved nothing, the lock can stay like a crashed holder's.
//   - Another program steals by deleting the file and creating its own. If its look was long ago, it
//     steals a live lock. Our next Renew notices that.
//   - The script's update_heartbeat doesn't check the owner. A script that was suspended with a stale lock
//     can overwrite our lock with it. TryLock notices it if the temporary file is there; otherwise Renew does.
//   - If neither RENAME_EXCHANGE nor RENAME_SWAP exists (see swap_other.go, and NFS), a heartbeat looks
//     and then renames. If it is suspended in between for longer than the ttl, it replaces the lock of a
//     thief that takes no flock.
//   - A lock's age is the difference of two hosts' wall clocks. A heartbeat in the future is live.
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

// DefaultSettle is longer than the bash script needs from its look to the end of its mv.
const DefaultSettle = time.Second

// Options describe the execution for which a Backend takes locks. The zero Options work.
type Options struct {
	// Actor, Intent and IntentVersion describe the holder to a process that finds the lock. They default to "repolock",
	// "command" and "0".
	Actor, Intent, IntentVersion string
	// HostID defaults to the hostname. RequestID defaults to req_ and random characters. Two executions must not have
	// the same RequestID.
	HostID, RequestID string
	// Metadata is written into the lock file. It must not have the field HandleField.
	Metadata map[string]any
	// Force makes TryLock steal a stale lock. It never steals a lock that isn't stale.
	Force bool
	// Created, if set, is called by Open when it has created the lock directory. The caller can then warn: a program
	// that uses another directory doesn't see the locks there.
	Created func(dir string)
	// Observe is for an intent of mode observe: the Backend locks, creates and writes nothing.
	Observe bool
	// Settle is how long TryLock waits before it checks whether a program that takes no flock has replaced its lock.
	// TryLock waits at most a third of the ttl. Settle defaults to DefaultSettle. With a negative Settle TryLock checks
	// at once, which is enough if all programs that use the directory use this package.
	Settle time.Duration
	// Clock defaults to the machine's clock.
	Clock locking.Clock
	// Audit, if set, is called with each event. The event marshals to the specification's JSON. Audit must not call the
	// Backend. It can be called concurrently.
	Audit func(event any)
}

// HandleField is the field of a lock file's metadata that distinguishes two locks of one request.
const HandleField = "repolock_handle"

// Backend keeps the locks of a directory. Its methods can be called concurrently. If another process holds the
// directory's flock, because it was stopped for example, they wait for it until their context ends, or for 10 s.
type Backend struct {
	dir  string
	opts Options

	mu   sync.Mutex
	held map[string]*holding // by the handle's token
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
)

// holding is the state of a held lock. Its times are by the clock's Elapsed.
type holding struct {
	mu                sync.Mutex // held during a renewal or a release
	acquired, renewed time.Duration
	failures          int           // consecutive intervals without a heartbeat
	failed            time.Duration // when failures was last increased
	lost              bool
	// rival is the temporary file of a request that might believe that it has the lock too. rivalSince is when a
	// renewal first found this file.
	rival      string
	rivalSince time.Duration
}

// Open returns the backend of a lock directory. It creates a missing directory with mode 0700, but no parent. It
// returns locking.ErrUnfit if the parent is missing or has locks of its own, if another user owns the directory or has
// any permission for it (section 12.1), or if flock can't lock the directory.
func Open(dir string, opts Options) (b *Backend, err error) {
	defer lockfile.Classify(&err)
	host, _ := os.Hostname()
	opts.Actor = cmp.Or(opts.Actor, "repolock")
	opts.Intent = cmp.Or(opts.Intent, "command")
	opts.IntentVersion = cmp.Or(opts.IntentVersion, "0")
	opts.HostID = cmp.Or(opts.HostID, host, "localhost")
	opts.RequestID = cmp.Or(opts.RequestID, "req_"+strings.ToLower(rand.Text()))
	opts.Settle = cmp.Or(opts.Settle, DefaultSettle)
	opts.Clock = cmp.Or[locking.Clock](opts.Clock, clock.System{})
	if err := CheckRequest(opts.RequestID); err != nil {
		return nil, err
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

// CheckRequest returns an error if a text can't be a RequestID.
func CheckRequest(id string) error {
	if !requestFormat.MatchString(id) {
		return fmt.Errorf("request id %q: use 1 to 128 letters, digits, dots, underscores, colons and hyphens, "+
			"with a letter or digit first", text.Cut(id, 140))
	}
	return nil
}

func (b *Backend) path(name string) string { return filepath.Join(b.dir, name+".lock") }

// interval returns the interval of heartbeats: a third of the ttl (section 5.2), but at most the 30 seconds that the
// specification recommends.
func interval(ttl time.Duration) time.Duration { return min(ttl/3, 30*time.Second) }

// Scheme is the scheme of a lock's URL, tower-fleet:DIR/NAME.
const Scheme = "tower-fleet"

// Target is a lock that a URL names.
type Target struct {
	// Dir is the lock directory, absolute and clean.
	Dir string
	// Name is the lock's name, which is the key for the Backend's methods.
	Name string
}

// Parse parses tower-fleet:DIR/NAME. A relative DIR begins at the working directory. Parse takes each character
// literally, without percent-encoding or a query. It reads no file. Its error is one line, and wraps locking.ErrKey if
// only the name is wrong.
func Parse(raw string) (Target, error) {
	refuse := func(why string) (Target, error) {
		return Target{}, fmt.Errorf("%q isn't a lock's URL: %s: write %s:DIR/NAME", text.Cut(raw, 200), why, Scheme)
	}
	scheme, path, ok := strings.Cut(raw, ":")
	slash := strings.LastIndexByte(path, '/')
	switch {
	case !ok || !strings.EqualFold(scheme, Scheme):
		return refuse("it has another scheme")
	case text.Escape(path) != path:
		return refuse("it has characters that aren't printable")
	case strings.HasPrefix(path, "//"):
		return refuse("it has a host")
	case path == "~" || strings.HasPrefix(path, "~/"):
		return refuse("the shell doesn't expand ~ there, so use $HOME")
	case slash < 0:
		return refuse("it has no directory, such as ./")
	}
	dir, name := path[:slash+1], path[slash+1:]
	if strings.HasSuffix(name, ".lock") && checkName(strings.TrimSuffix(name, ".lock")) == nil {
		return Target{}, fmt.Errorf("%w: lock name %q: leave out .lock", locking.ErrKey, name)
	}
	if err := checkName(name); err != nil {
		return Target{}, err
	}
	dir, err := filepath.Abs(filepath.FromSlash(dir))
	if err != nil {
		return refuse("the working directory is unknown: " + text.Error(err))
	}
	if strings.HasPrefix(filepath.ToSlash(dir), "//") || text.Escape(dir) != dir {
		return refuse("the working directory has a name that isn't printable, or begins with //")
	}
	return Target{Dir: dir, Name: name}, nil
}

// String returns the URL. If you parse it in any working directory, the result is t.
func (t Target) String() string {
	return Scheme + ":" + strings.TrimSuffix(filepath.ToSlash(t.Dir), "/") + "/" + t.Name
}
