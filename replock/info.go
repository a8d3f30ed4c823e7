package replock

import (
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/repolock/repolock/store"
)

// Verdict is what can be said of a lock that somebody else left in the store.
type Verdict int

const (
	// Live: its time isn't over, by the store's clock.
	Live Verdict = iota + 1
	// Stale: two clocks agree that its time is over, or it was watched for its
	// whole time and didn't change. The next who needs it gone removes it.
	Stale
	// Doubtful: the store's clock says that its time is over, and no second
	// clock agrees. It counts as held until it was watched for its whole time.
	Doubtful
	// Unreadable: it can't be known what it says. It counts as held until
	// break-lock.
	Unreadable
	// Released: an empty body, from a holder that wasn't allowed to delete.
	Released
)

// String is the verdict in lower case.
func (v Verdict) String() string {
	switch v {
	case Live:
		return "live"
	case Stale:
		return "stale"
	case Doubtful:
		return "doubtful"
	case Unreadable:
		return "unreadable"
	case Released:
		return "released"
	default:
		return fmt.Sprintf("Verdict(%d)", int(v))
	}
}

// MarshalText is String.
func (v Verdict) MarshalText() ([]byte, error) { return []byte(v.String()), nil }

// Info describes a lock in the store. Its texts come from whoever wrote the
// lock: use Printable before showing them.
type Info struct {
	Mode Mode
	// Keys of the lock's objects; an exclusive lock has two.
	Keys []string
	// ID is empty in the locks of other clients. AcquiredID is the first that a lock had
	// which was resumed since; else it is empty.
	ID, AcquiredID string
	// Operation and Holder, State, User, Version and Metadata as the body has
	// them, texts cut at 1 KiB, and without Metadata of more than 4 KiB.
	Operation, Holder, State, User, Version string
	Metadata                                map[string]string
	// Body is the whole of it, as it is stored: nil if it wasn't read, or has changed
	// since, or if those of the locks before it have 4 MiB. It must not be changed.
	Body []byte
	// Acquired and Expires are the holder's wall clock's.
	Acquired, Expires time.Time
	TTL               time.Duration
	// ModTime is the store's clock's, of the last refresh.
	ModTime time.Time
	// Age since the last refresh and Left until it expires are the store's
	// clock's, and lower bounds, if StoreClock is set; else they are this
	// machine's wall clock's. Left is negative for one that has expired.
	Age, Left  time.Duration
	StoreClock bool
	Verdict    Verdict
	// Why explains a verdict of Doubtful or Unreadable.
	Why string
	// ProcessGone: the holder was a process of this very machine and boot, and
	// that process doesn't exist any more.
	ProcessGone bool

	object store.Object
}

// identity tells a lock from another one that was put under the same key later: by
// its id, or as other clients do by holder and time of acquisition, or if it can't
// be read by the object itself.
func (i Info) identity() string {
	switch {
	case i.ID != "":
		return "id " + i.ID
	case i.Verdict == Unreadable:
		return "etag " + i.object.ETag
	default:
		return "holder " + i.Holder + i.Acquired.String()
	}
}

// Key is the first of Keys.
func (i Info) Key() string { return i.Keys[0] }

// String is the lock in one line, for errors: who holds it, what they do, since
// when, and until when if they don't refresh it.
func (i Info) String() string {
	if i.Verdict == Unreadable && store.CheckKey(i.Key()) != nil {
		return fmt.Sprintf("%s lock %s can't be read (%s); if no operation is running, break-lock says how to delete it",
			i.Mode, Printable(i.Key()), Printable(i.Why))
	}
	if i.Verdict == Unreadable {
		return fmt.Sprintf("%s lock %s can't be read (%s); if no operation is running, break-lock removes it",
			i.Mode, Printable(i.Key()), Printable(i.Why))
	}
	if i.Holder == "" && i.Why != "" {
		return fmt.Sprintf("%s lock %s, which can't be read just now (%s)", i.Mode, Printable(i.Key()), Printable(i.Why))
	}
	s := fmt.Sprintf("%s lock of %s", i.Mode, orUnknown(i.Holder))
	if i.State == stateWaiting {
		s += ", who waits for it"
	}
	s += fmt.Sprintf(", operation %s", orUnknown(i.Operation))
	if !i.Acquired.IsZero() {
		s += ", since " + i.Acquired.UTC().Format(time.RFC3339)
	}
	switch {
	case i.Verdict == Doubtful:
		s += ", perhaps stale: " + Printable(i.Why)
	case i.ProcessGone:
		s += ", whose process is gone, expires in " + max(i.Left, 0).Round(time.Second).String()
	default:
		s += ", expires in " + max(i.Left, 0).Round(time.Second).String() + " unless refreshed"
	}
	return s + " (" + Printable(i.Key()) + ")"
}

func orUnknown(s string) string {
	if strings.TrimSpace(s) == "" {
		return "unknown"
	}
	return Printable(s)
}

// maxPrintable is where Printable cuts.
const maxPrintable = 256

// Printable makes a text from a lock's body safe to show on a terminal: control
// characters and others that aren't shown are escaped, and it is cut at 256
// bytes.
func Printable(s string) string {
	var b strings.Builder
	for _, r := range s {
		if b.Len() > maxPrintable {
			b.WriteString("…")
			break
		}
		if r == '\\' || !unicode.IsPrint(r) {
			q := strconv.QuoteRuneToASCII(r)
			b.WriteString(q[1 : len(q)-1])
			continue
		}
		b.WriteRune(r)
	}
	return b.String()
}
