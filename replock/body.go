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

// maxBody is the number of bytes that are read of a body, before and after decompression.
const maxBody = 64 << 10

// foreignTTL is the ttl of locks that other clients of the wire format write. Their bodies don't
// have it.
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

// State is the stage of the lock that its body names: docs/protocol.md, The body of a lock. It is
// empty in locks of clients that don't follow that page.
type State string

// The states that this package writes.
const (
	// StateAcquiring: the lock wasn't refreshed yet. Its owner is acquiring it. Or the owner has
	// held it for up to half of the ttl, or for up to a second if it is exclusive.
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
	errOdd       = errors.New("lock.exclusive is not a file, or lock.intent or lock.shared is not a folder")
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
		return decoded{}, fmt.Errorf("damaged: not a lock's JSON: %s", text.Cut(err.Error(), maxText))
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

// maxText is the number of bytes to which bound cuts a text. No text that we write is as long.
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
		return nil, fmt.Errorf("body is larger than %d bytes", maxBody)
	}
	return plain, nil
}
