package wire

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
	"github.com/repolock/repolock/internal/text"
)

// MaxBody is the number of bytes that we read of a body, before and after decompression.
const MaxBody = 64 << 10

// ForeignTTL is the ttl of locks that other clients of the wire format write. Their bodies have no ttl.
const ForeignTTL = 60 * time.Second

// Body is the JSON of a lock object. Its first five fields are the wire format, which other clients read and write.
// They ignore the other fields.
type Body struct {
	Operation  string `json:"operation"`
	Holder     string `json:"holder"`
	AcquiredAt string `json:"acquired_at"`
	ExpiresAt  string `json:"expires_at"`
	IsShared   bool   `json:"is_shared"`

	ID string `json:"id,omitempty"` // 128 random bits in hex
	// AcquiredID is the id under which a resumed lock was first acquired.
	AcquiredID  string  `json:"acquired_id,omitempty"`
	TTLSeconds  float64 `json:"ttl_seconds,omitempty"`
	RefreshedAt string  `json:"refreshed_at,omitempty"`
	// RefreshedBoot is the clock since boot, in nanoseconds, when this body was written. That clock can't be set.
	// Processes with the same boot id and time namespace can compare it.
	RefreshedBoot int64  `json:"refreshed_boot_ns,omitempty"`
	Seq           uint64 `json:"seq,omitempty"`
	// Nonce is 64 random bits in hex, new for each put. So two copies of one process never write the same body.
	Nonce            string            `json:"nonce,omitempty"`
	State            State             `json:"state,omitempty"`
	identity.Process                   // TimeNamespace is also the namespace of RefreshedBoot
	Version          string            `json:"version,omitempty"`
	Metadata         map[string]string `json:"metadata,omitempty"`
}

// State is the stage of a lock: replock.State explains each value.
type State string

// The states that this program writes.
const (
	StateAcquiring State = "acquiring"
	StateWaiting   State = "waiting"
	StateHeld      State = "held"
)

// Encode returns the body as plain JSON, which the wire format requires.
func (b Body) Encode() []byte {
	out, err := json.Marshal(b)
	if err != nil {
		panic("replock: encoding a lock body: " + err.Error()) // strings and numbers always encode
	}
	return out
}

// WireTime is RFC 3339 with nine digits of the second.
const WireTime = "2006-01-02T15:04:05.000000000Z07:00"

// Errors of a body from which no lock can be read.
var (
	ErrEmptied   = errors.New("empty body: the lock was released")
	ErrEncrypted = errors.New("body is encrypted")
	ErrNotFolder = errors.New("not a folder")
	ErrNotFile   = errors.New("lock.exclusive is not a file")
	ErrLarge     = fmt.Errorf("damaged: larger than %d KiB", MaxBody>>10)
)

// Decoded is a body with its times and its ttl parsed.
type Decoded struct {
	Body
	Acquired, Refreshed, Expires time.Time
	TTL                          time.Duration
}

// Decode parses a lock body as any client of the wire format writes it: JSON, plain or compressed by zstd or gzip. It
// returns ErrEmptied for an empty body, and ErrEncrypted for an encrypted one. It reads at most MaxBody bytes, also of
// the decompressed body.
func Decode(raw []byte) (Decoded, error) {
	plain, err := decompress(raw)
	if err != nil {
		return Decoded{}, err
	}
	var l Decoded
	if err := json.Unmarshal(plain, &l.Body); err != nil {
		return Decoded{}, notJSON(plain)
	}
	l.bound()
	if l.Expires, err = parseTime(l.ExpiresAt); err != nil {
		return Decoded{}, errors.New("damaged: no valid expires_at")
	}
	// The time of the acquire is for people only, so an invalid one is no error.
	l.Acquired, _ = parseTime(l.AcquiredAt)
	l.TTL = ForeignTTL
	if l.TTLSeconds < 0 {
		return Decoded{}, errors.New("damaged: no valid ttl_seconds")
	}
	if l.TTLSeconds > 0 {
		l.TTL = time.Duration(min(max(l.TTLSeconds, MinTTL.Seconds()), MaxTTL.Seconds()) * float64(time.Second))
	}
	l.Refreshed = l.Expires.Add(-l.TTL)
	if l.RefreshedAt != "" {
		if l.Refreshed, err = parseTime(l.RefreshedAt); err != nil {
			return Decoded{}, errors.New("damaged: no valid refreshed_at")
		}
	}
	return l, nil
}

// parseTime parses RFC 3339 with any offset and any digits of the second. time.Parse also accepts an hour of one digit,
// a comma in place of the point, and an offset of 24 hours.
func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339Nano, s)
	if err != nil {
		return t, err
	}
	offset := s[len(s)-len("00:00"):] // there are five bytes at least
	if s[len("2026-03-07T9")] == ':' || strings.Contains(s, ",") || !strings.HasSuffix(s, "Z") && (offset[:2] > "23" || offset[3:] > "59") {
		return t, errors.New("not RFC 3339")
	}
	return t, nil
}

// notJSON returns the error of a body that couldn't be parsed: it isn't JSON, or has no lock's fields.
func notJSON(plain []byte) error {
	if json.Valid(plain) {
		return errors.New("damaged: not a lock's fields")
	}
	return errors.New("damaged: not JSON")
}

// maxText is the number of bytes to which bound cuts a text. The texts that we write are shorter.
const maxText = 1 << 10

// bound cuts the texts of other clients, because a survey keeps the bodies of many locks.
func (b *Body) bound() {
	for _, s := range []*string{
		&b.Operation, &b.Holder, &b.AcquiredAt, &b.ExpiresAt, &b.ID, &b.AcquiredID, &b.RefreshedAt, &b.Nonce,
		&b.HostID, &b.BootID, &b.PIDNamespace, &b.TimeNamespace, &b.User, &b.Version,
	} {
		*s = text.Cut(*s, maxText)
	}
	b.State = State(text.Cut(string(b.State), maxText))
	if BytesIn(b.Metadata) > MaxMetadata {
		b.Metadata = nil
	}
}

func decompress(raw []byte) ([]byte, error) {
	switch {
	case len(raw) == 0:
		return nil, ErrEmptied
	case raw[0] == 0x01:
		return nil, ErrEncrypted
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
	plain, err := io.ReadAll(io.LimitReader(r, MaxBody+1))
	if err != nil {
		return nil, fmt.Errorf("body is not valid %s: %w", what, err)
	}
	if len(plain) > MaxBody {
		return nil, ErrLarge
	}
	return plain, nil
}

// Bounds and default of a ttl.
const (
	MinTTL     = 10 * time.Second
	DefaultTTL = 60 * time.Second
	MaxTTL     = 24 * time.Hour
)

// Limits that keep a body below MaxBody, even if JSON escapes each byte as six. A reader reads no more than MaxBody.
const (
	MaxMetadata  = 4 << 10
	MaxOperation = 256
)

// BytesIn returns the size of metadata, as MaxMetadata counts it.
func BytesIn(metadata map[string]string) (n int) {
	for k, v := range metadata {
		n += len(k) + len(v)
	}
	return n
}
