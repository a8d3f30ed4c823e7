package replock

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
)

// DefaultPrefix is the prefix of the repository's own lock in the wire format.
const DefaultPrefix = "index/"

// keys makes and recognizes the keys of a lock's objects: docs/evidence/protocol.md, What is stored.
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

// fence returns a key that doesn't begin with all, because the fence object outlives the locks.
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

// Places of acquirers without a ticket. A resume comes before all waiters, because they wait for the lock
// that it resumes. A shared acquirer comes last.
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

// CheckName returns an error unless name can name a lock: 1 to 128 of a-z, 0-9, "-" and "_", the first and
// last of them a letter or digit. "repository" is refused, because status shows the repository's own lock,
// which has no name, under that name.
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

// maxBody is the number of bytes that are read of a body, before and after decompression.
const maxBody = 64 << 10

// foreignTTL is the ttl of locks that other clients of the wire format write. Their bodies have no ttl.
const foreignTTL = 60 * time.Second

// body is the JSON of a lock object. The first five fields are the wire format, which other clients
// read and write. Those clients ignore the other fields.
type body struct {
	Operation  string `json:"operation"`
	Holder     string `json:"holder"`
	AcquiredAt string `json:"acquired_at"`
	ExpiresAt  string `json:"expires_at"`
	IsShared   bool   `json:"is_shared"`

	ID string `json:"id,omitempty"`
	// AcquiredID is the id with which a resumed lock was first acquired.
	AcquiredID  string  `json:"acquired_id,omitempty"`
	TTLSeconds  float64 `json:"ttl_seconds,omitempty"`
	RefreshedAt string  `json:"refreshed_at,omitempty"`
	// RefreshedBoot is the clock since boot, in nanoseconds, when this body was written. It can't
	// be set. Processes with the same boot id and time namespace can compare it.
	RefreshedBoot    int64             `json:"refreshed_boot_ns,omitempty"`
	Seq              uint64            `json:"seq,omitempty"`
	State            State             `json:"state,omitempty"`
	identity.Process                   // TimeNamespace is also the namespace of RefreshedBoot
	Version          string            `json:"version,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
}

// State is the stage of the lock that its body names: docs/evidence/protocol.md, The body of a lock. It is
// empty in locks of clients that don't follow that page.
type State string

// The states that this package writes.
const (
	// StateAcquiring: the lock wasn't refreshed yet. Its owner is acquiring it, or has held it for up to
	// half of the ttl (shared) or up to a second (exclusive).
	StateAcquiring State = "acquiring"
	// StateWaiting: the ticket of a waiter. It grants nothing.
	StateWaiting State = "waiting"
	// StateHeld: a holder has refreshed the lock at least once.
	StateHeld State = "held"
)

// encode returns the body as plain JSON, which the wire format requires.
func (b body) encode() []byte {
	out, err := json.Marshal(b)
	if err != nil {
		panic("replock: encoding a lock body: " + err.Error()) // strings and numbers always encode
	}
	return out
}

// stamp dates a body that is about to be sent. Clients of the original protocol compare expires_at
// with their own clocks. So expires_at counts from this machine's wall clock or the store's clock,
// whichever is later, and is at least foreignTTL after the deadline of the lease.
func (l *Locker) stamp(b *body, st storeTime, sent time.Duration) {
	now := l.opts.Clock.Now().UTC()
	lasts := max(l.opts.TTL, l.times.Deadline+foreignTTL)
	b.RefreshedAt, b.RefreshedBoot = now.Format(wireTime), int64(sent)
	b.ExpiresAt = now.Add(l.behind(st) + lasts).Format(wireTime)
	if b.State == StateWaiting && b.IsShared {
		b.ExpiresAt = time.Unix(0, 0).UTC().Format(wireTime) // clients of the original protocol take it for expired
	}
}

// behind returns a lower bound of the time by which the wall clock is behind the store's clock, or
// 0.
func (l *Locker) behind(st storeTime) time.Duration {
	if !st.known() || !l.store.Properties().StoreClock {
		return 0
	}
	return max(st.when(l.opts.Clock.Elapsed()).Sub(l.opts.Clock.Now()), 0)
}

// wireTime is RFC 3339 with nine digits of the second.
const wireTime = "2006-01-02T15:04:05.000000000Z07:00"

// Errors of a body from which no lock can be read.
var (
	errReleased  = errors.New("empty body: the lock was released")
	errEncrypted = errors.New("body is encrypted")
	errNotFolder = errors.New("not a folder")
	errNotFile   = errors.New("lock.exclusive is not a file")
	errLarge     = fmt.Errorf("damaged: larger than %d KiB", maxBody>>10)
)

// decoded is a body with its times parsed.
type decoded struct {
	body
	acquired, refreshed, expires time.Time
	ttl                          time.Duration
}

// decode parses a lock body as any client of the wire format writes it: JSON, plain or compressed
// by zstd or gzip. It returns errReleased for an empty body, and errEncrypted for an encrypted one.
// It reads at most maxBody bytes, also of the decompressed body.
func decode(raw []byte) (decoded, error) {
	plain, err := decompress(raw)
	if err != nil {
		return decoded{}, err
	}
	var l decoded
	if err := json.Unmarshal(plain, &l.body); err != nil {
		return decoded{}, notJSON(plain)
	}
	l.bound()
	if l.expires, err = time.Parse(time.RFC3339Nano, l.ExpiresAt); err != nil {
		return decoded{}, errors.New("damaged: no valid expires_at")
	}
	// The time of the acquire is for people only, so an invalid one is no error.
	l.acquired, _ = time.Parse(time.RFC3339Nano, l.AcquiredAt)
	l.ttl = foreignTTL
	if l.TTLSeconds < 0 {
		return decoded{}, errors.New("damaged: no valid ttl_seconds")
	}
	if l.TTLSeconds > 0 {
		l.ttl = time.Duration(min(max(l.TTLSeconds, MinTTL.Seconds()), MaxTTL.Seconds()) * float64(time.Second))
	}
	l.refreshed = l.expires.Add(-l.ttl)
	if l.RefreshedAt != "" {
		if l.refreshed, err = time.Parse(time.RFC3339Nano, l.RefreshedAt); err != nil {
			return decoded{}, errors.New("damaged: no valid refreshed_at")
		}
	}
	return l, nil
}

// notJSON returns the error of a body that couldn't be parsed: it isn't JSON, or has no lock's fields.
func notJSON(plain []byte) error {
	if json.Valid(plain) {
		return errors.New("damaged: not a lock's fields")
	}
	return errors.New("damaged: not JSON")
}

// maxText is the number of bytes to which bound cuts a text. We write only shorter ones.
const maxText = 1 << 10

// bound cuts the texts of other clients, because a survey keeps the bodies of many locks.
func (b *body) bound() {
	for _, s := range []*string{
		&b.Operation, &b.Holder, &b.AcquiredAt, &b.ExpiresAt, &b.ID, &b.AcquiredID, &b.RefreshedAt,
		&b.HostID, &b.BootID, &b.PIDNamespace, &b.TimeNamespace, &b.User, &b.Version,
	} {
		*s = text.Cut(*s, maxText)
	}
	b.State = State(text.Cut(string(b.State), maxText))
	if bytesIn(b.Metadata) > maxMetadata {
		b.Metadata = nil
	}
}

func decompress(raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0:
		return nil, errReleased
	case raw[0] == 0x01:
		return nil, errEncrypted
	case bytes.HasPrefix(raw, []byte{0x28, 0xb5, 0x2f, 0xfd}):
		r, err := zstd.NewReader(bytes.NewReader(raw), zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true))
		if err != nil {
			return nil, fmt.Errorf("body is not valid zstd: %w", err)
		}
		defer r.Close()
		return readBounded(r, "zstd")
	case bytes.HasPrefix(raw, []byte{0x1f, 0x8b}):
		r, err := gzip.NewReader(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("body is not valid gzip: %w", err)
		}
		return readBounded(r, "gzip")
	default:
		return raw, nil
	}
}

func readBounded(r io.Reader, what string) ([]byte, error) {
	plain, err := io.ReadAll(io.LimitReader(r, maxBody+1))
	if err != nil {
		return nil, fmt.Errorf("body is not valid %s: %w", what, err)
	}
	if len(plain) > maxBody {
		return nil, errLarge
	}
	return plain, nil
}
