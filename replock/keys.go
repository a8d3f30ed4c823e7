package replock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// DefaultPrefix is the prefix of the wire format's own lock.
const DefaultPrefix = "index/"

// keys builds and recognizes the keys of a lock's objects: docs/protocol.md, Objects.
type keys struct{ prefix string }

// kind is what a key under a lock's prefix stands for.
type kind int

const (
	kindUnknown   kind = iota // not a lock
	kindExclusive             // lock.exclusive
	kindIntent                // lock.intent/…
	kindShared                // lock.shared/…
	kindOdd                   // an object in the place of one of them, or of their folders
)

// all is the prefix of all flags. In byte order the exclusive lock comes first, then the
// intents, then the shared flags, of which a shared acquirer needs to list none.
func (k keys) all() string       { return k.prefix + "lock." }
func (k keys) exclusive() string { return k.prefix + "lock.exclusive" }
func (k keys) intents() string   { return k.prefix + "lock.intent/" }
func (k keys) shared() string    { return k.prefix + "lock.shared/" }

// fence is outside of all(): the fence object survives the locks.
func (k keys) fence() string { return k.prefix + "lock-fence" }

// flag returns the key of an acquirer's own flag.
func (k keys) flag(m Mode, at time.Time, id string) string {
	dir := k.shared()
	if m == Exclusive {
		dir = k.intents()
	}
	return dir + timestamp(at) + "-" + id
}

// kind returns what a listed key stands for. It never parses the names that other clients give
// their shared flags. The name of an intent has no further slash: a client whose policy allows
// shared locks only, locks/*/lock.shared/*, can write locks/NAME/lock.intent/lock.shared/x.
func (k keys) kind(key string) kind {
	switch {
	case key == k.exclusive():
		return kindExclusive
	case strings.HasPrefix(key, k.intents()) && !strings.Contains(key[len(k.intents()):], "/"):
		return kindIntent
	case strings.HasPrefix(key, k.shared()):
		return kindShared
	case strings.HasPrefix(key, k.exclusive()+"/lock.shared/"):
		return kindUnknown // a policy for shared locks, index/locks/*/lock.shared/*, allows it
	case key+"/" == k.intents(), key+"/" == k.shared(), strings.HasPrefix(key, k.exclusive()+"/"):
		return kindOdd
	default:
		return kindUnknown
	}
}

// place returns the part of a flag's key by which waiters come one after another: TIME-ID.
func place(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// Of acquirers without a ticket one that resumes its lock has the first place, because the waiters wait
// for it, and a shared one has the last.
const (
	firstPlace = ""
	lastPlace  = "~"
)

// timestamp returns a time as text of fixed width that sorts in time's order and is a safe file
// name on every system (no colon). It clamps years that do not have four digits.
func timestamp(t time.Time) string {
	t = t.UTC()
	switch y := t.Year(); {
	case y > 9999:
		t = time.Date(9999, 12, 31, 23, 59, 59, 999999999, time.UTC)
	case y < 0:
		t = time.Date(0, 1, 1, 0, 0, 0, 0, time.UTC)
	}
	return t.Format("20060102T150405.000000000Z")
}

var nameSyntax = lazyregexp.New(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)

// CheckName returns an error unless name can name a lock: 1 to 128 of a-z, 0-9, "-" and "_", the
// first and last of them a letter or digit. "repository" is no name: it is how the lock without one, the
// repository's own, is shown, and whoever typed it would hold another lock.
func CheckName(name string) error {
	if len(name) < 1 || len(name) > 128 {
		return fmt.Errorf("lock name %.80q: must have 1 to 128 characters", name)
	}
	if name == "repository" {
		return errors.New(`lock name "repository": only shown for the repository's own lock, which has no name: leave the name out`)
	}
	if !nameSyntax.MatchString(name) {
		return fmt.Errorf("lock name %q: only a-z, 0-9, - and _, and neither of the last two at an end", name)
	}
	return nil
}
