package replock

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/klauspost/compress/zstd"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
)

// maxBody is how much of a body is read, before and after decompression.
const maxBody = 64 << 10

// foreignTTL is how long the wire format's other clients hold a lock between
// refreshes; their bodies don't say.
const foreignTTL = 60 * time.Second

// body is what a lock object says. The first five fields are the wire format,
// which other clients read and write; the rest are ours, and ignored by them.
type body struct {
	Operation  string `json:"operation"`
	Holder     string `json:"holder"`
	AcquiredAt string `json:"acquired_at"`
	ExpiresAt  string `json:"expires_at"`
	IsShared   bool   `json:"is_shared"`

	ID string `json:"id,omitempty"`
	// AcquiredID is the first id of a lock that was resumed.
	AcquiredID  string  `json:"acquired_id,omitempty"`
	TTLSeconds  float64 `json:"ttl_seconds,omitempty"`
	RefreshedAt string  `json:"refreshed_at,omitempty"`
	// RefreshedBoot is the clock since boot, in nanoseconds, when this body was written. None
	// can set it, and processes with the same boot id and time namespace can compare it.
	RefreshedBoot    int64  `json:"refreshed_boot_ns,omitempty"`
	Seq              uint64 `json:"seq,omitempty"`
	State            State  `json:"state,omitempty"`
	identity.Process        // whose TimeNamespace is also that of RefreshedBoot
	Version          string `json:"version,omitempty"`
	// PassesTickets is in the ticket of an exclusive waiter that passes those of shared waiters
	// which come later. Versions without it take each for a lock.
	PassesTickets bool              `json:"passes_tickets,omitempty"`
	Metadata      map[string]string `json:"metadata,omitempty"`
}

// State is how far the owner of a lock has come, as its body says: docs/protocol.md, The body of a lock. It
// is empty in the locks of clients that don't keep to that page.
type State string

// The states that this package writes.
const (
	// StateAcquiring: the lock wasn't refreshed yet. Its owner is acquiring it, or has held it for up to
	// half of the ttl, an exclusive one for a second.
	StateAcquiring State = "acquiring"
	// StateWaiting: the ticket of an acquirer in the queue. It holds nothing.
	StateWaiting State = "waiting"
	// StateHeld: a holder has refreshed the lock at least once.
	StateHeld State = "held"
)

// encode writes plain JSON, as the wire format wants it.
func (b body) encode() []byte {
	out, err := json.Marshal(b)
	if err != nil {
		panic("replock: encoding a lock body: " + err.Error()) // strings and numbers always encode
	}
	return out
}

// stamp dates a body that is about to be sent. Clients of the original protocol judge by
// expires_at and their own clocks. So it is by the later one of this machine's wall clock and
// the store's, and at the deadline of the lease still a foreignTTL ahead.
func (l *Locker) stamp(b *body, st storeTime, sent time.Duration) {
	now := l.opts.Clock.Now().UTC()
	lasts := max(l.opts.TTL, l.times.Deadline+foreignTTL)
	b.RefreshedAt, b.RefreshedBoot = now.Format(wireTime), int64(sent)
	b.ExpiresAt = now.Add(l.behind(st) + lasts).Format(wireTime)
	if b.State == StateWaiting && b.IsShared {
		b.ExpiresAt = time.Unix(0, 0).UTC().Format(wireTime) // to those clients it is no lock
	}
}

// behind returns by how much, at least, the wall clock is behind the store's, or 0.
func (l *Locker) behind(st storeTime) time.Duration {
	if !st.known() || !l.store.Properties().StoreClock {
		return 0
	}
	return max(st.when(l.opts.Clock.Elapsed()).Sub(l.opts.Clock.Now()), 0)
}

// wireTime is RFC 3339 with nanoseconds, all nine digits written.
const wireTime = "2006-01-02T15:04:05.000000000Z07:00"

// Reasons why a body describes no lock.
var (
	errReleased  = errors.New("empty body: the lock was released")
	errEncrypted = errors.New("body is encrypted")
	errOdd       = errors.New("lock.exclusive must be a file, and lock.intent and lock.shared folders; here it is otherwise")
)

// decoded is a body with its times understood.
type decoded struct {
	body
	acquired, refreshed, expires time.Time
	ttl                          time.Duration
}

// decode understands a lock body as any client of the wire format writes it: JSON, plain or zstd
// or gzip. It returns errReleased for an empty body, and errEncrypted for an encrypted one. It
// reads no more than maxBody bytes, decompressed.
func decode(raw []byte) (decoded, error) {
	plain, err := decompress(raw)
	if err != nil {
		return decoded{}, err
	}
	var l decoded
	if err := json.Unmarshal(plain, &l.body); err != nil {
		return decoded{}, fmt.Errorf("body is not a lock's JSON: %s", text.Cut(err.Error(), maxText))
	}
	l.bound()
	if l.expires, err = time.Parse(time.RFC3339Nano, l.ExpiresAt); err != nil {
		return decoded{}, errors.New("body has no valid expires_at")
	}
	// When it was acquired is for people only.
	l.acquired, _ = time.Parse(time.RFC3339Nano, l.AcquiredAt)
	l.ttl = foreignTTL
	if l.TTLSeconds < 0 {
		return decoded{}, errors.New("body has no valid ttl_seconds")
	}
	if l.TTLSeconds > 0 {
		l.ttl = time.Duration(min(max(l.TTLSeconds, MinTTL.Seconds()), MaxTTL.Seconds()) * float64(time.Second))
	}
	l.refreshed = l.expires.Add(-l.ttl)
	if l.RefreshedAt != "" {
		if l.refreshed, err = time.Parse(time.RFC3339Nano, l.RefreshedAt); err != nil {
			return decoded{}, errors.New("body has no valid refreshed_at")
		}
	}
	return l, nil
}

// maxText is where a text is cut that another client has written, in bytes. None of ours is as long.
const maxText = 1 << 10

// bound cuts the texts of other clients: there can be many locks, and each is kept.
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
		return nil, fmt.Errorf("body is larger than %d bytes", maxBody)
	}
	return plain, nil
}
