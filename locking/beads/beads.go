package beads

import (
	"context"
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

// Key is the only key: a database has one lock. It is the name of its file.
const Key = ".exclusive-lock"

// Options of a Backend. The zero value suits most programs.
type Options struct {
	// Holder and Version name the program in the file; "repolock" and none if they are empty.
	Holder, Version string
	// PID is the process that lives as long as the lock; this one if it is 0.
	PID int
	// Clock dates the locks; the machine's if it is nil.
	Clock clock.Clock
}

// Backend is a locking.Backend, a locking.Inspector and a locking.Breaker. Its methods can be
// called concurrently. They look at their contexts between system calls.
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
)

// New returns the backend of a database. dir is its .beads directory, which must exist.
func New(dir string, opts Options) (*Backend, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, err
	}
	info, err := os.Stat(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s doesn't exist: name the .beads directory of a database: %w", dir, fs.ErrNotExist)
	}
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return nil, fmt.Errorf("%s is no directory: name the .beads directory of a database", dir)
	}
	host, err := os.Hostname()
	if err != nil || host == "" {
		return nil, fmt.Errorf("the hostname of this machine, which the lock in %s must have, is unknown: %v", dir, err)
	}
	if opts.Holder == "" {
		opts.Holder = "repolock"
	}
	if opts.PID == 0 {
		opts.PID = os.Getpid()
	}
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	b := &Backend{dir: dir, path: filepath.Join(dir, Key), host: host, opts: opts, held: make(map[string]*own)}
	return b, b.record().validate()
}

// maxTries is how often TryLock creates a lock anew that another program removes at once.
const maxTries = 5

// TryLock creates the lock file, if there is none or a stale one. It waits only for the flock of
// the directory, and 100 ms after it has replaced a stale lock.
func (b *Backend) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if err := b.check(ctx, key); err != nil {
		return h, false, err
	}
	for range maxTries {
		mine, replaced, err := b.create(ctx)
		if mine == nil || err != nil {
			return h, false, err
		}
		if replaced {
			err = clock.Sleep(ctx, b.opts.Clock, settle)
		}
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return h, false, errors.Join(err, b.drop(mine))
		}
		if err = mine.verify(); err == nil {
			h = locking.NewHandle(key, ttl)
			b.mu.Lock()
			b.held[h.Token()] = mine
			b.mu.Unlock()
			return h, true, nil
		}
		if err := b.drop(mine); err != nil {
			return h, false, err
		}
	}
	return h, false, fmt.Errorf("another program removes %s as soon as it is created: end it", b.path)
}

// settle is the time in which a daemon removes the stale lock that it has read.
const settle = 100 * time.Millisecond

// create creates the lock file. mine is nil if another holder has the lock.
func (b *Backend) create(ctx context.Context) (mine *own, replaced bool, err error) {
	unlock, exclusive, err := b.flock(ctx)
	if err != nil {
		return nil, false, err
	}
	defer unlock()
	there, err := b.read()
	if err != nil {
		return nil, false, err
	}
	if there != nil {
		if !exclusive || !b.stale(there) {
			return nil, false, nil
		}
		if removed, err := b.remove(there); !removed || err != nil {
			return nil, false, err
		}
	}
	mine, err = b.link()
	return mine, there != nil, err
}

// Renew verifies that the file is the one that TryLock has created. It writes nothing.
func (b *Backend) Renew(ctx context.Context, h locking.Handle) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	mine := b.find(h)
	if mine == nil {
		return fmt.Errorf("%s: %w", b.path, locking.ErrLost)
	}
	err := mine.verify()
	if errors.Is(err, locking.ErrLost) {
		b.forget(h)
		mine.file.Close()
	}
	return err
}

// Release removes the file that TryLock has created, and no other.
func (b *Backend) Release(ctx context.Context, h locking.Handle) error {
	unlock, _, err := b.flock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	mine := b.find(h)
	if mine == nil {
		return fmt.Errorf("%s: %w", b.path, locking.ErrLost)
	}
	err = mine.verify()
	if err == nil {
		var removed bool
		if removed, err = b.remove(&mine.content); err == nil && !removed {
			err = mine.lost("replaced")
		}
	}
	if err == nil || errors.Is(err, locking.ErrLost) {
		b.forget(h)
		mine.file.Close()
	}
	return err
}

// drop removes a file that becomes no lock. Its context has ended, perhaps.
func (b *Backend) drop(mine *own) error {
	defer mine.file.Close()
	ctx, cancel := context.WithTimeout(context.Background(), flockLimit)
	defer cancel()
	unlock, _, err := b.flock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if err := mine.verify(); errors.Is(err, locking.ErrLost) {
		return nil
	} else if err != nil {
		return err
	}
	_, err = b.remove(&mine.content)
	return err
}

// Cleanup removes a stale lock, and files beside it that a process left behind a day ago or
// earlier.
func (b *Backend) Cleanup(ctx context.Context) error {
	if seen, err := b.Inspect(ctx, Key); err != nil {
		return err
	} else if seen != nil && seen.Stale {
		if _, err := b.Break(ctx, seen, true); err != nil {
			return err
		}
	}
	entries, err := os.ReadDir(b.dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		info, err := e.Info()
		if err != nil || !info.Mode().IsRegular() || !isTemp(e.Name()) || b.opts.Clock.Now().Sub(info.ModTime()) < 24*time.Hour {
			continue
		}
		if err := os.Remove(filepath.Join(b.dir, e.Name())); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, tempPrefix) && strings.HasSuffix(name, tempSuffix)
}

func (b *Backend) check(ctx context.Context, key string) error {
	if key != Key {
		return fmt.Errorf("%w: %q: a beads database has the lock %q alone", locking.ErrKey, key, Key)
	}
	return ctx.Err()
}

func (b *Backend) find(h locking.Handle) *own {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.held[h.Token()]
}

func (b *Backend) forget(h locking.Handle) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.held, h.Token())
}
