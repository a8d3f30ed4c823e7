package replock

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/lazyregexp"
)

// DefaultPrefix is the prefix of the repository's own lock in the wire format.
const DefaultPrefix = "index/"

// keys makes and recognizes the keys of a lock's objects: docs/protocol.md, What is stored.
type keys struct{ prefix string }

// kind is the meaning of a key under a lock's prefix.
type kind int

const (
	kindUnknown   kind = iota // not a lock
	kindExclusive             // lock.exclusive
	kindIntent                // lock.intent/…
	kindShared                // lock.shared/…
	kindOdd                   // an object in place of one of these, or of their folders
)

// all is the prefix of all flags and of lock.exclusive. In byte order lock.exclusive comes first,
// then the intents, then the shared flags, which a shared acquirer needn't list.
func (k keys) all() string       { return k.prefix + "lock." }
func (k keys) exclusive() string { return k.prefix + "lock.exclusive" }
func (k keys) intents() string   { return k.prefix + "lock.intent/" }
func (k keys) shared() string    { return k.prefix + "lock.shared/" }

// fence isn't under all, because the fence object outlives the locks.
func (k keys) fence() string { return k.prefix + "lock-fence" }

// flag returns the key of a new flag.
func (k keys) flag(m Mode, at time.Time, id string) string {
	dir := k.shared()
	if m == Exclusive {
		dir = k.intents()
	}
	return dir + timestamp(at) + "-" + id
}

// kind returns the meaning of a listed key. It never parses the names of shared flags, because
// other clients choose other names. An intent's name has no further slash: a client whose policy
// allows only shared locks, locks/*/lock.shared/*, can write locks/NAME/lock.intent/lock.shared/x.
func (k keys) kind(key string) kind {
	switch {
	case key == k.exclusive():
		return kindExclusive
	case strings.HasPrefix(key, k.intents()) && !strings.Contains(key[len(k.intents()):], "/"):
		return kindIntent
	case strings.HasPrefix(key, k.shared()):
		return kindShared
	case strings.HasPrefix(key, k.exclusive()+"/lock.shared/"):
		return kindUnknown // a policy for shared locks allows it: index/locks/*/lock.shared/*
	case key+"/" == k.intents(), key+"/" == k.shared(), strings.HasPrefix(key, k.exclusive()+"/"):
		return kindOdd
	default:
		return kindUnknown
	}
}

// place returns the TIME-ID part of a flag's key, which orders the waiters.
func place(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// Places of acquirers without a ticket. One that resumes its lock comes before the waiters, because
// they wait for that lock. A shared one comes last.
const (
	firstPlace = ""
	lastPlace  = "~"
)

// timestamp returns a time as text of fixed width that sorts in the order of time. It has no colon,
// so it is a valid file name on every system. Years that don't have four digits are clamped.
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
// first and last of them a letter or digit. "repository" is refused: the repository's own lock,
// which has no name, is shown by that word, so its user would take another lock by mistake.
func CheckName(name string) error {
	if len(name) < 1 || len(name) > 128 {
		return fmt.Errorf("lock name %.80q: must have 1 to 128 characters", name)
	}
	if name == "repository" {
		return errors.New(`lock name "repository": only shown for the repository's own lock, which has no name: leave the name out`)
	}
	if !nameSyntax.MatchString(name) {
		return fmt.Errorf("lock name %q: only a-z, 0-9, - and _ are allowed, and it must begin and end with a letter or digit", name)
	}
	return nil
}
