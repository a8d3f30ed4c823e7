package replock

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
)

// Limits of a lock's time to live, and what it is unless said otherwise.
const (
	MinTTL     = 10 * time.Second
	DefaultTTL = 60 * time.Second
	MaxTTL     = 24 * time.Hour
)

// Limits of the time between two looks at a held lock, and what it is unless
// said otherwise.
const (
	MinLook     = time.Second
	DefaultLook = 10 * time.Second
)

// Clock tells the time. It must advance together with the runtime's timers, as
// the system's own does, and as time in a testing/synctest bubble does.
type Clock = clock.Clock

// Options of a Locker. The zero value is the wire format's own lock.
type Options struct {
	// TTL is how long the lock outlives a holder that can't refresh it any
	// more, from MinTTL to MaxTTL; 0 is DefaultTTL. It is refreshed at half of
	// it or up to a tenth of that earlier, and must be given up at 55/60 of it.
	TTL time.Duration
	// Look is how often a holder looks at its own objects, from MinLook to the
	// ttl; 0 is DefaultLook. It bounds how long a lock that was broken, or that
	// others passed while the machine stood still, is taken for held. A look is
	// one list request.
	Look time.Duration
	// Name of the lock, for a repository that has several (see CheckName). Empty
	// is the repository's own lock, which other clients of the wire format see.
	Name string
	// Prefix of the lock's keys, ending in a slash, in place of DefaultPrefix
	// and of Name.
	Prefix string
	// Metadata goes into the lock's body for others to read: no secrets.
	Metadata map[string]string
	// Version of the program, for others to read.
	Version string
	// Fence asks for a fencing number with each exclusive lock; see Lock.Fence.
	Fence bool
	// Logger gets what is worth knowing; nil is silence.
	Logger *slog.Logger
	// Observe, if set, is told of each event, one after another, a moment after
	// it has happened.
	Observe func(Event)
	// Clock, Rand and Self are for tests. Nil is the system's clock, crypto/rand
	// and this process.
	Clock Clock
	Rand  io.Reader
	Self  *identity.Process
}

func (o *Options) fill() error {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return fmt.Errorf("ttl %v: must be from %v to %v", o.TTL, MinTTL, MaxTTL)
	}
	if o.Look == 0 {
		o.Look = DefaultLook
	}
	if o.Look < MinLook || o.Look > o.TTL {
		return fmt.Errorf("look %v: must be from %v to the ttl, %v", o.Look, MinLook, o.TTL)
	}
	switch {
	case o.Prefix != "" && o.Name != "":
		return fmt.Errorf("both a prefix (%q) and a name (%q) were given", o.Prefix, o.Name)
	case o.Name != "":
		if err := CheckName(o.Name); err != nil {
			return err
		}
		o.Prefix = DefaultPrefix + "locks/" + o.Name + "/"
	case o.Prefix == "":
		o.Prefix = DefaultPrefix
	case o.Prefix[len(o.Prefix)-1] != '/':
		return fmt.Errorf("prefix %q: must end in a slash", o.Prefix)
	}
	size := 0
	for k, v := range o.Metadata {
		size += len(k) + len(v)
	}
	if size > maxMetadata {
		return fmt.Errorf("metadata has %d bytes: must have at most %d", size, maxMetadata)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	if o.Rand == nil {
		o.Rand = rand.Reader
	}
	if o.Self == nil {
		self := identity.Self()
		o.Self = &self
	}
	return nil
}

// Limits that keep a body below maxBody, which readers stop at, even if every
// byte of them is escaped as six.
const (
	maxMetadata  = 4 << 10
	maxOperation = 256
)
