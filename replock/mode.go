package replock

import (
	"fmt"
	"strings"
	"time"
)

// Mode is how a lock shares the repository.
type Mode int

const (
	// Shared locks exist side by side: backup, restore.
	Shared Mode = iota + 1
	// Exclusive locks exist alone: prune.
	Exclusive
)

// String is "shared" or "exclusive".
func (m Mode) String() string {
	switch m {
	case Shared:
		return "shared"
	case Exclusive:
		return "exclusive"
	default:
		return fmt.Sprintf("Mode(%d)", int(m))
	}
}

// MarshalText is String.
func (m Mode) MarshalText() ([]byte, error) { return []byte(m.String()), nil }

// DefaultPrefix is where the wire format keeps its locks.
const DefaultPrefix = "index/"

// keys are the names of a lock's objects: PROTOCOL.md, Objects.
type keys struct{ prefix string }

// kind is what a key under a lock's prefix stands for.
type kind int

const (
	kindUnknown   kind = iota // not a lock
	kindExclusive             // lock.exclusive
	kindIntent                // lock.intent/…
	kindShared                // lock.shared/…
	kindOdd                   // what is in the place of one of them, or of their folders
)

// all is the prefix of all flags. In byte order the exclusive lock comes first,
// then the intents, then the shared flags, so that the first page of a listing
// tells a shared acquirer everything, however many shared flags there are.
func (k keys) all() string       { return k.prefix + "lock." }
func (k keys) exclusive() string { return k.prefix + "lock.exclusive" }
func (k keys) intents() string   { return k.prefix + "lock.intent/" }
func (k keys) shared() string    { return k.prefix + "lock.shared/" }

// fence is outside of all(): it survives the locks.
func (k keys) fence() string { return k.prefix + "lock-fence" }

// flag is the key of an acquirer's own flag.
func (k keys) flag(m Mode, at time.Time, id string) string {
	dir := k.shared()
	if m == Exclusive {
		dir = k.intents()
	}
	return dir + timestamp(at) + "-" + id
}

// kind tells what a listed key stands for. The names that other clients give
// their shared flags are never parsed. An intent's has no further slash: what has one
// was put there by somebody whose policy is for shared locks, under a key that it takes
// for one (locks/NAME/lock.intent/lock.shared/x matches locks/*/lock.shared/*).
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

// timestamp is of fixed width, sorts in time's order, and is a safe file name
// on every system (no colon). Years that four digits can't say are clamped.
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

// CheckOperation returns an error unless operation can name what a lock is for: 1
// to 256 bytes.
func CheckOperation(operation string) error {
	if operation == "" || len(operation) > maxOperation {
		return fmt.Errorf("operation %q: must have 1 to %d bytes", Printable(operation), maxOperation)
	}
	return nil
}

// CheckName returns an error unless name can name a lock: 1 to 128 of a-z, 0-9,
// "-" and "_", the first and last of them a letter or digit.
func CheckName(name string) error {
	if len(name) < 1 || len(name) > 128 {
		return fmt.Errorf("lock name %.80q: must have 1 to 128 characters", name)
	}
	for i, r := range name {
		alnum := r >= 'a' && r <= 'z' || r >= '0' && r <= '9'
		if !alnum && (r != '-' && r != '_' || i == 0 || i == len(name)-1) {
			return fmt.Errorf("lock name %q: only a-z, 0-9, - and _, and neither of the last two at an end", name)
		}
	}
	return nil
}
