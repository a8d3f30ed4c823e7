package verdict

import (
	"errors"
	"maps"
	"strings"
	"time"

	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// Entry is a lock object of another client, with its parsed body and the verdict about it.
type Entry struct {
	store.Object
	Kind    wire.Kind     // by its key
	Marked  bool          // its key shows that it is a ticket
	Read    bool          // Raw, Lease and Err are set
	Raw     []byte        // the stored body
	Lease   wire.Decoded  // the parsed body
	Err     error         // why the body couldn't be read or parsed
	Carried bool          // not read: Lease is the parsed body of an earlier version
	Since   time.Duration // Clock.Elapsed, when a listing first showed this version
	Changed bool          // a listing showed another version before
	Listed  time.Duration // Clock.Elapsed, when a survey sent the request that showed it

	Verdict Verdict // set by Judge and PresumeLive
	Why     string  // the reason of the verdict
}

// Shared reports whether the entry's lock is shared.
func (e *Entry) Shared() bool {
	return e.Kind == wire.KindShared || errors.Is(e.Err, wire.ErrNotFolder) && strings.HasSuffix(e.Key, "lock.shared")
}

// Memory keeps entries from look to look: a body while its ETag is unchanged, and the time since when the object is
// unchanged.
type Memory map[string]*Entry

// See returns the entry of an object in a listing that was answered at the given time.
func (s Memory) See(o store.Object, k wire.Kind, answered time.Duration) *Entry {
	e, ok := s[o.Key]
	if was := e; !ok || e.ETag != o.ETag || !e.ModTime.Equal(o.ModTime) || e.Size != o.Size {
		e = &Entry{Object: o, Kind: k, Since: answered, Changed: ok}
		switch {
		case o.Size == 0: // an empty body needn't be read
			e.Read, e.Err = true, wire.ErrEmptied
		case k == wire.KindOdd:
			e.Read, e.Err = true, wire.ErrNotFolder
			if strings.Contains(o.Key, "lock.exclusive/") {
				e.Err = wire.ErrNotFile
			}
		case ok:
			e.carry(was)
		}
		s[o.Key] = e
	}
	return e
}

// Forget drops entries whose objects are missing on a page, because a later object under the same key is another lock.
// after is the last key of the previous page.
func (s Memory) Forget(page store.Page, after string) {
	listed := map[string]bool{}
	for _, o := range page.Objects {
		listed[o.Key] = true
	}
	maps.DeleteFunc(s, func(key string, _ *Entry) bool {
		return covers(page, key) && key > after && !listed[key]
	})
}

// carry takes over the parsed body of the previous version of a flag, because a refresh changes only the times in it.
func (e *Entry) carry(was *Entry) {
	if e.Kind == wire.KindExclusive || was.Err != nil || !was.Read && !was.Carried {
		return
	}
	e.Lease, e.Carried = was.Lease, true
	if !e.ModTime.IsZero() && !was.ModTime.IsZero() {
		later := e.ModTime.Sub(was.ModTime)
		e.Lease.Refreshed, e.Lease.Expires = e.Lease.Refreshed.Add(later), e.Lease.Expires.Add(later)
	}
}

// TTL returns how long the lock lasts after its last refresh.
func (e *Entry) TTL() time.Duration {
	if e.Err != nil {
		return wire.ForeignTTL
	}
	return e.Lease.TTL
}

// Age returns the age of an entry by the store's clock, or 0 and false if it is unknown. So a lock of unknown age counts
// as young.
func (e *Entry) Age(st StoreTime, now time.Duration) (time.Duration, bool) {
	if !st.Known() || e.ModTime.IsZero() {
		return 0, false
	}
	return st.When(now).Sub(e.ModTime), true
}

// An empty file with this suffix can be a temporary file that another program is still writing. No client removes it
// for a day, which is more than the error of a clock.
const (
	temporary = ".tmp"
	abandoned = 24 * time.Hour
)

// Unfinished reports whether an entry can be a file that another program is still writing.
func (e *Entry) Unfinished(st StoreTime, now time.Duration) bool {
	age, _ := e.Age(st, now)
	return strings.HasSuffix(e.Key, temporary) && age <= abandoned
}

// Forget makes the next look read the body again.
func (e *Entry) Forget() { e.Read, e.Carried = false, false }

// PresumeLive gives an entry the verdict Live, because its body couldn't be read.
func (e *Entry) PresumeLive(why error) {
	e.Forget()
	e.Verdict, e.Why = Live, why.Error()
}

// Decode parses a body into an entry.
func (e *Entry) Decode(raw []byte) {
	e.Read, e.Raw = true, raw
	e.Lease, e.Err = wire.Decode(raw)
}

// ErrVanished is the error of an entry that was listed, and was missing or empty when its body was read. It was
// probably deleted meanwhile, and another look shows that.
var ErrVanished = errors.New("it is listed, but was missing when it was read")

// ErrUnread is the class of the error if a body couldn't be fetched. A body that was fetched and can't be parsed has
// another error.
var ErrUnread = errors.New("the body couldn't be read")

func (e *Entry) goesAfter(b *Entry) bool {
	if e.IsTicket() != b.IsTicket() {
		return e.IsTicket()
	}
	return e.Key > b.Key
}

// IsTicket reports whether the entry is a waiter's ticket, which grants nothing: by its key, or by its body. lock.exclusive
// is never a ticket.
func (e *Entry) IsTicket() bool {
	return e.Marked || e.Err == nil && e.Lease.State == wire.StateWaiting && (e.Kind == wire.KindIntent || e.Kind == wire.KindShared)
}

// HasID reports whether an entry is known to belong to a client of this protocol. The body of an earlier version is
// enough, because only its owner writes a flag.
func (e *Entry) HasID() bool {
	return (e.Read || e.Carried) && e.Err == nil && e.Lease.ID != ""
}

// InPage returns the object that a page of a listing shows under a key, or nil. The bool is false if the key belongs on
// a later page.
func InPage(page store.Page, key string) (*store.Object, bool) {
	for i, o := range page.Objects {
		if o.Key == key {
			return &page.Objects[i], true
		}
	}
	return nil, covers(page, key)
}

// covers reports whether a key belongs on this page or an earlier one.
func covers(page store.Page, key string) bool {
	n := len(page.Objects)
	return page.Next == "" || n > 0 && page.Objects[n-1].Key > key
}
