package replock

import (
	"cmp"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
)

// Info describes a lock in the store. Its texts come from the client that wrote the lock. They can contain control
// characters, so print them with %q.
type Info struct {
	Mode Mode // shared or exclusive
	// Keys are the keys of the lock's objects. An exclusive lock has two.
	Keys []string
	// ID is the lock's id, or empty if its client doesn't follow this protocol. AcquiredID is the id under which a
	// resumed lock was first acquired, or else empty.
	ID, AcquiredID string
	// Operation, Holder, State, User, Version and Metadata are fields of the body. A text is cut at
	// 1 KiB, and Metadata of more than 4 KiB is omitted.
	Operation, Holder, User, Version string
	State                            State
	Metadata                         map[string]string
	// Body is the stored body. It is nil if it wasn't read, if the object has changed since, or if the bodies of the
	// locks before this one exceed 4 MiB. Don't modify it.
	Body []byte
	// Acquired and Expires are times on the holder's wall clock.
	Acquired, Expires time.Time
	TTL               time.Duration // how long the lock lasts after each refresh
	// ModTime is the time of the last refresh on the store's clock.
	ModTime time.Time
	// Age is the time since the last refresh. Left is the time until the lock expires, and negative if it has expired.
	// If StoreClock is true, both are lower bounds by the store's clock. Otherwise this machine's wall clock measures
	// them.
	Age, Left  time.Duration
	StoreClock bool
	Verdict    Verdict // the judgement of the lock
	// Why is the reason for the verdict Doubtful or Unreadable.
	Why string
	// ProcessGone reports that the holder was a process of this machine and boot that no longer exists.
	ProcessGone bool

	stored store.Object
}

// fingerprint distinguishes a lock from a later one under the same key. It is the lock's id, or else its holder and the
// time of its acquire, as other clients identify locks. For an unreadable lock it is the ETag.
func (i Info) fingerprint() string {
	switch {
	case i.ID != "":
		return "id " + i.ID
	case i.Verdict == Unreadable:
		return "etag " + i.stored.ETag
	default:
		return "holder " + i.Holder + i.Acquired.String()
	}
}

// acquired returns the id with which the lock was first acquired, which stays when it is resumed. It is empty if the
// lock has no id.
func (i Info) acquired() string { return cmp.Or(i.AcquiredID, i.ID) }

// Key returns the first of Keys.
func (i Info) Key() string { return i.Keys[0] }

// String describes the lock in one line, for errors: its holder, operation, start and last refresh.
func (i Info) String() string {
	if i.Verdict == Unreadable {
		does := "removes it"
		if store.CheckKey(i.Key()) != nil {
			does = "prints how to delete it"
		}
		return fmt.Sprintf("%s lock %s can't be read (%s); if no operation is running, break-lock %s",
			i.Mode, text.Brief(i.Key()), text.Brief(i.Why), does)
	}
	if i.Holder == "" && i.Why != "" {
		return fmt.Sprintf("%s lock %s, which can't be read just now (%s)", i.Mode, text.Brief(i.Key()), text.Brief(i.Why))
	}
	s := fmt.Sprintf("%s lock of %s", i.Mode, text.Or(i.Holder, "unknown"))
	if i.State == StateWaiting {
		s += ", waiting"
	}
	s += fmt.Sprintf(", operation %s", text.Or(i.Operation, "unknown"))
	if !i.Acquired.IsZero() {
		s += ", since " + i.Acquired.UTC().Format(time.RFC3339)
	}
	switch {
	case i.Verdict == Doubtful:
		s += ", perhaps stale: " + text.Brief(i.Why)
	case i.ProcessGone:
		s += ", whose process is gone, expires in " + text.Duration(i.Left)
	case !i.ModTime.IsZero() || !i.Expires.IsZero():
		s += ", last seen " + text.Ago(max(i.Age, 0))
	}
	return s + " (" + text.Brief(i.Key()) + ")"
}

// certainty ranks verdicts: a higher rank means more certainty that the lock has ended. Of the verdicts on its two
// objects, an exclusive lock gets the one with the lower rank.
var certainty = map[Verdict]int{Live: 0, Unreadable: 1, Doubtful: 2, Stale: 3, Released: 4}

// merge combines the two objects of each exclusive lock into one Info. It reuses the slice.
func merge(infos []Info) []Info {
	out := infos[:0]
	index := map[string]int{}
	for _, i := range infos {
		if i.ID != "" && i.Mode == Exclusive {
			if at, ok := index[i.ID]; ok {
				out[at].Keys = append(out[at].Keys, i.Keys...)
				out[at].Age, out[at].Left = min(out[at].Age, i.Age), max(out[at].Left, i.Left)
				if certainty[i.Verdict] < certainty[out[at].Verdict] {
					out[at].Verdict, out[at].Why = i.Verdict, i.Why
				}
				continue
			}
			index[i.ID] = len(out)
		}
		out = append(out, i)
	}
	return out
}
