package replock

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock/internal/wire"
)

// DefaultPrefix is the prefix of the repository's own lock in the wire format.
const DefaultPrefix = "index/"

// Bounds and default of Options.TTL.
const (
	MinTTL     time.Duration = wire.MinTTL
	DefaultTTL time.Duration = wire.DefaultTTL
	MaxTTL     time.Duration = wire.MaxTTL
)

// Lower bound and default of Options.Look.
const (
	MinLook     = time.Second
	DefaultLook = 10 * time.Second
)

// Options configures a Locker. The zero value is for the repository's own lock.
type Options struct {
	// TTL is how long other clients treat the lock as held after its holder has died. It is from MinTTL to MaxTTL, and
	// 0 means DefaultTTL. The holder refreshes the lock after 45 to 50 % of the ttl. If no refresh is answered, the
	// lock is lost after 55/60 of the ttl.
	TTL time.Duration
	// Look is the time between two looks of a holder at its lock, from MinLook to the ttl. 0 means DefaultLook. If a
	// person breaks the lock, or another client removes it while the machine stands still, the holder notices within
	// this time. A look is one list request.
	Look time.Duration
	// Name is the name of the lock, for a repository that has several: see CheckName. The empty
	// name is the repository's own lock, which other clients of the wire format see.
	Name string
	// Prefix replaces DefaultPrefix. It ends in a slash. It can't be combined with Name.
	Prefix string
	// Beside names the other programs that hold the repository's own lock. If it is BesideUnknown, a Locker finds out by
	// one to three requests, which it sends beside its first put. Beside Cloudstic an acquire takes two round trips more:
	// a wait, and a second look. So does an acquire in an empty repository, and one that can't find out.
	Beside Beside
	// Metadata is stored in the lock's body, where every reader of the store sees it. It must not contain secrets.
	Metadata map[string]string
	// Version is the version of the program. It is stored in the lock's body.
	Version string
	// Logger logs the events. If it is nil they aren't logged.
	Logger *slog.Logger
	// Observe, if set, is called with each event: in order, one at a time, shortly after the event. A call that blocks
	// delays later events and Flush, but not the refreshes.
	Observe func(Event)
	// Clock replaces the system's clocks in tests. Nil means the system's clocks; in a testing/synctest bubble, these
	// are the bubble's clock.
	Clock Clock
}

func (o *Options) fill() error {
	o.TTL, o.Look = cmp.Or(o.TTL, DefaultTTL), cmp.Or(o.Look, DefaultLook)
	if o.TTL < MinTTL || o.TTL > MaxTTL {
		return fmt.Errorf("ttl %v: must be from %v to %v", o.TTL, MinTTL, MaxTTL)
	}
	if o.Look < MinLook || o.Look > o.TTL {
		return fmt.Errorf("look %v: must be from %v to the ttl, %v", o.Look, MinLook, o.TTL)
	}
	if o.Beside < BesideUnknown || o.Beside > BesideCloudstic {
		return fmt.Errorf("beside %v: must be unknown, nobody or cloudstic", o.Beside)
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
	if size := wire.BytesIn(o.Metadata); size > wire.MaxMetadata {
		return fmt.Errorf("metadata has %d bytes: must have at most %d", size, wire.MaxMetadata)
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Clock == nil {
		o.Clock = clock.System{}
	}
	return nil
}

var nameSyntax = lazyregexp.New(`^[a-z0-9]([a-z0-9_-]*[a-z0-9])?$`)

// CheckName returns an error unless name can name a lock. A name has 1 to 128 of a-z, 0-9, "-" and "_", and begins and
// ends with a letter or digit. CheckName refuses "repository", because status shows the repository's own lock, which
// has no name, under that name.
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

// CheckOperation returns an error unless operation has 1 to 256 bytes.
func CheckOperation(operation string) error {
	if operation == "" || len(operation) > wire.MaxOperation {
		return fmt.Errorf("operation %q: must have 1 to %d bytes", text.Brief(operation), wire.MaxOperation)
	}
	return nil
}

// Clock has the two clocks that a lease needs. Its methods can be called concurrently. It must advance together with
// the runtime's timers, as the system's clocks do, and as time does in a testing/synctest bubble.
type Clock interface {
	// Now returns the time of the wall clock. That clock can be wrong and can jump. Its time is stored in bodies, and
	// never decides anything alone.
	Now() time.Time
	// Elapsed returns the time on a clock that can't be set, that counts suspends of the machine, and that all
	// processes of one boot share. It counts from an arbitrary moment. Deadlines are times on this clock.
	Elapsed() time.Duration
	// After returns a channel that receives once d has passed. Suspends of the machine don't count.
	After(d time.Duration) <-chan time.Time
}

// process is a Clock that also brings its own randomness and process identity. With it a test simulates several
// processes in one.
type process interface {
	Process() (io.Reader, identity.Process)
}
