package towerfleet

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// DefaultTTL replaces a ttl of 0 (section 3.3).
const DefaultTTL = 900 * time.Second

const (
	version   = "v1"
	heartbeat = "last_heartbeat_at"
	maxSize   = 1 << 20              // bytes of a lock file that we read
	maxTTL    = 10 * 366 * 24 * 3600 // seconds: ten years
)

var (
	nameFormat    = lazyregexp.New(`^[a-z0-9]([a-z0-9_-]{0,126}[a-z0-9])?$`)
	requestFormat = lazyregexp.New(`^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$`)
)

// checkName returns an error that wraps locking.ErrKey unless a lock can have this name (section 2.2).
func checkName(name string) error {
	if nameFormat.MatchString(name) {
		return nil
	}
	return fmt.Errorf("%w: lock name %q: use 1 to 128 of a-z, 0-9, _ and -, with a letter or digit first and last",
		locking.ErrKey, text.Cut(name, 140))
}

// record is the content of a lock file (section 3).
type record struct {
	LockVersion     string          `json:"lock_version"`
	LockName        string          `json:"lock_name"`
	RequestID       string          `json:"request_id"`
	Actor           string          `json:"actor"`
	Intent          string          `json:"intent"`
	IntentVersion   string          `json:"intent_version"`
	HostID          string          `json:"host_id"`
	PID             int             `json:"pid"`
	CreatedAt       string          `json:"created_at"`
	LastHeartbeatAt string          `json:"last_heartbeat_at"`
	TTLSeconds      int64           `json:"ttl_seconds"`
	Metadata        json.RawMessage `json:"metadata,omitempty"`

	created, beat time.Time
}

// required returns, by the field's name, a pointer to the value of each required field of a lock file.
func (r *record) required() map[string]any {
	return map[string]any{
		"lock_version": &r.LockVersion, "lock_name": &r.LockName, "request_id": &r.RequestID, "actor": &r.Actor,
		"intent": &r.Intent, "intent_version": &r.IntentVersion, "host_id": &r.HostID, "pid": &r.PID,
		"created_at": &r.CreatedAt, heartbeat: &r.LastHeartbeatAt, "ttl_seconds": &r.TTLSeconds,
	}
}

// parse parses the lock file of a name, and checks each field (section 12.2). Its error describes the mistake in the
// file. Unlike encoding/json, parse distinguishes upper and lower case, and refuses a field that occurs twice, so that
// all readers of the file agree.
func parse(b []byte, name string) (*record, error) {
	fields, err := split(b)
	if err != nil {
		return nil, fmt.Errorf("it isn't a JSON object: %s", text.Line(err.Error()))
	}
	r := new(record)
	for f, into := range r.required() {
		at, ok := fields[f]
		if !ok {
			return nil, fmt.Errorf("it has no %s", f)
		}
		value := b[at.from:at.to]
		if bytes.Equal(value, []byte("null")) || json.Unmarshal(value, into) != nil {
			return nil, fmt.Errorf("its %s has the wrong type", f)
		}
	}
	if at, ok := fields["metadata"]; ok {
		if r.Metadata = b[at.from:at.to]; r.Metadata[0] != '{' {
			return nil, errors.New("its metadata isn't an object")
		}
	}
	return r, r.check(name)
}

func (r *record) check(name string) (err error) {
	switch {
	case r.LockVersion != version:
		return fmt.Errorf("its lock_version is %q, not %q", text.Cut(r.LockVersion, 40), version)
	case r.LockName != name:
		return fmt.Errorf("its lock_name is %q", text.Cut(r.LockName, 140))
	case !requestFormat.MatchString(r.RequestID):
		return errors.New("its request_id has invalid characters, or is too long")
	case r.TTLSeconds < 1 || r.TTLSeconds > maxTTL:
		return fmt.Errorf("its ttl_seconds is %d, not 1 to %d", r.TTLSeconds, maxTTL)
	}
	if r.created, err = parseTime(r.CreatedAt); err != nil {
		return errors.New("its created_at isn't a time in UTC")
	}
	if r.beat, err = parseTime(r.LastHeartbeatAt); err != nil {
		return errors.New("its last_heartbeat_at isn't a time in UTC")
	}
	return nil
}

func parseTime(s string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return t, err
	}
	if _, offset := t.Zone(); offset != 0 {
		return t, errors.New("not in UTC")
	}
	return t.UTC(), nil
}

func formatTime(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05Z") }

func (r *record) ttl() time.Duration { return time.Duration(r.TTLSeconds) * time.Second }

// age returns the age of the heartbeat in seconds, as the script computes it (section 6.2): the difference of two times
// in whole seconds. It exceeds the ttl only after the ttl has passed.
func (r *record) age(now time.Time) int64 { return now.Unix() - r.beat.Unix() }

// stale reports whether the heartbeat has expired (section 6.1). A heartbeat in the future has not.
func (r *record) stale(now time.Time) bool { return r.age(now) > r.TTLSeconds }

// withHeartbeat returns the content of a lock file with a new heartbeat (section 5.3). All other bytes are unchanged.
func withHeartbeat(b []byte, now time.Time) ([]byte, error) {
	fields, err := split(b)
	at, ok := fields[heartbeat]
	if err != nil || !ok {
		return nil, errors.New("it has no " + heartbeat)
	}
	return bytes.Join([][]byte{b[:at.from], []byte(`"` + formatTime(now) + `"`), b[at.to:]}, nil), nil
}

// span is the position of a value in a file, in bytes.
type span struct{ from, to int }

// split returns, by field, the spans of the values of a JSON object.
func split(b []byte) (map[string]span, error) {
	if !json.Valid(b) {
		return nil, errors.New("invalid JSON")
	}
	d := json.NewDecoder(bytes.NewReader(b))
	if t, err := d.Token(); err != nil || t != json.Delim('{') {
		return nil, errors.New("it is another value")
	}
	fields := map[string]span{}
	for d.More() {
		t, _ := d.Token() // a string, because the JSON is valid
		name, _ := t.(string)
		var value json.RawMessage
		if err := d.Decode(&value); err != nil {
			return nil, err
		}
		if _, twice := fields[name]; twice {
			return nil, fmt.Errorf("it has %q twice", text.Cut(name, 40))
		}
		end := int(d.InputOffset())
		fields[name] = span{end - len(value), end}
	}
	return fields, nil
}
