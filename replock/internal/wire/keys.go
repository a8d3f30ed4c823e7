package wire

import (
	"slices"
	"strings"
	"time"
)

// Keys makes and recognizes the keys of a lock's objects: docs/evidence/protocol.md, What is stored.
type Keys struct {
	Prefix string // ends in a slash
}

// Kind is the meaning of a key under a lock's prefix.
type Kind int

const (
	KindUnknown   Kind = iota // not a lock
	KindExclusive             // lock.exclusive
	KindIntent                // lock.intent/…
	KindShared                // lock.shared/…
	KindOdd                   // an object in the place of lock.exclusive, or of a folder of flags
)

// IsLock reports whether objects of this kind are locks.
func (k Kind) IsLock() bool { return k != KindUnknown }

// All is the prefix of all flags and of lock.exclusive. In byte order lock.exclusive comes first,
// then the intents, then the shared flags, which a shared acquirer needn't list.
func (k Keys) All() string { return k.Prefix + "lock." }

// Exclusive is the key of the exclusive lock, which all clients of the wire format know.
func (k Keys) Exclusive() string { return k.Prefix + "lock.exclusive" }

func (k Keys) intents() string { return k.Prefix + "lock.intent/" }

func (k Keys) shared() string { return k.Prefix + "lock.shared/" }

// Fence returns a key that doesn't begin with All, because the fence object outlives the locks.
func (k Keys) Fence() string { return k.Prefix + "lock-fence" }

// SharedFlag returns the key of a new flag of a shared lock.
func (k Keys) SharedFlag(at time.Time, id string) string {
	return k.shared() + timestamp(at) + "-" + id
}

// Intent returns the key of a new flag of an exclusive lock.
func (k Keys) Intent(at time.Time, id string) string { return k.intents() + timestamp(at) + "-" + id }

// ticketMark ends the key of a ticket. No lock is ever held under such a key.
const ticketMark = "-w"

// Ticket returns the key of the ticket of an acquirer that would have the given flag.
func Ticket(flag string) string { return flag + ticketMark }

// IsTicket reports whether a key alone shows that its object is a ticket: docs/evidence/protocol.md, The queue. Clients
// of earlier versions have tickets under the keys of flags, and only their bodies show what they are.
func (k Keys) IsTicket(key string) bool {
	name, marked := strings.CutSuffix(Place(key), ticketMark)
	return marked && isTimeID(name) && (key == k.intents()+name+ticketMark || key == k.shared()+name+ticketMark)
}

// isTimeID reports whether a name is a TIME-ID in the form of this protocol. No other client has written one by chance.
func isTimeID(name string) bool {
	at, id, _ := strings.Cut(name, "-")
	_, err := time.Parse(timeLayout, at)
	return err == nil && len(at) == len(timeLayout) && len(id) == 2*idBytes && strings.Trim(id, "0123456789abcdef") == ""
}

// timeLayout is the layout of TIME in a flag's key, and idBytes the number of random bytes of an ID.
const (
	timeLayout = "20060102T150405.000000000Z"
	idBytes    = 16
)

// Kind returns the meaning of a listed key. It never parses the names of shared flags, because other clients choose
// other names. An intent's name has no slash: if a policy allows a client only shared locks, locks/*/lock.shared/*, the
// client can write locks/NAME/lock.intent/lock.shared/x.
func (k Keys) Kind(key string) Kind {
	intent, isIntent := strings.CutPrefix(key, k.intents())
	shared, isShared := strings.CutPrefix(key, k.shared())
	switch {
	case key == k.Exclusive():
		return KindExclusive
	case isIntent && !strings.Contains(intent, "/") && !stray(intent):
		return KindIntent
	case isShared && !stray(shared):
		return KindShared
	case strings.HasPrefix(key, k.Exclusive()+"/lock.shared/"):
		return KindUnknown // a policy for shared locks allows it: index/locks/*/lock.shared/*
	case key+"/" == k.intents(), key+"/" == k.shared(), strings.HasPrefix(key, k.Exclusive()+"/"):
		return KindOdd
	default:
		return KindUnknown
	}
}

// BehindIntents reports whether a key comes behind the keys of all locks that conflict with a shared lock.
func (k Keys) BehindIntents(key string) bool { return strings.HasPrefix(key, k.shared()) }

// Skips reports whether a listing may skip a folder that this user can't read, because all keys below it are of files of
// another program. The folder's key ends with a slash. In doubt a folder might have a lock.
func (k Keys) Skips(folder string) bool {
	intent, isIntent := strings.CutPrefix(folder, k.intents())
	shared, isShared := strings.CutPrefix(folder, k.shared())
	return isIntent && stray(intent) || isShared && stray(shared)
}

// stray reports whether the name of a flag is one that other programs give their files, so that no client can have
// written it: docs/evidence/protocol.md, Files of other programs. In doubt it isn't.
func stray(name string) bool {
	at := strings.LastIndexByte(name, '/') + 1
	for folder := range strings.SplitSeq(name[:max(at-1, 0)], "/") {
		if isOf(folder, strayFolders) {
			return true
		}
	}
	return isOf(name[at:], strayFiles)
}

// The names of other programs' files and folders that don't begin with a dot.
var (
	strayFiles   = []string{"Thumbs.db", "ehthumbs.db", "desktop.ini", "Icon\r"}
	strayFolders = []string{
		"@eaDir", "@tmp", "#recycle", "#snapshot", "@Recycle", "@Recently-Snapshot", "$RECYCLE.BIN", "System Volume Information",
		"lost+found", "Network Trash Folder", "Temporary Items",
	}
)

// isOf reports whether a name is one of these, in capital or small letters, or begins with a dot. The elements "." and
// ".." aren't names of files.
func isOf(name string, names []string) bool {
	if strings.HasPrefix(name, ".") {
		return name != "." && name != ".."
	}
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// IsStray reports whether another program gives its files this name.
func IsStray(name string) bool { return stray(name) }

// IsPlace reports whether a name is a flag's or a ticket's, as clients of this protocol choose it.
func IsPlace(name string) bool { return isTimeID(strings.TrimSuffix(name, ticketMark)) }

// Place returns the TIME-ID part of a flag's key, which orders the waiters.
func Place(key string) string { return key[strings.LastIndexByte(key, '/')+1:] }

// The places of acquirers without a ticket. A resume comes before all waiters, because they wait for the lock that it
// resumes. A shared acquirer comes last.
const (
	FirstPlace = ""
	LastPlace  = "~"
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
	return t.Format(timeLayout)
}
