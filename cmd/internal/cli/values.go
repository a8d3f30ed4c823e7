package cli

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/replock"
)

// duration parses a duration as time.ParseDuration does, but it can begin with days: 1d, 1d12h.
func duration(word string) (time.Duration, error) {
	days, rest, found := strings.Cut(word, "d")
	if n, err := strconv.ParseFloat(strings.TrimLeft(days, "+-"), 64); found && err == nil {
		sign := days[:len(days)-len(strings.TrimLeft(days, "+-"))]
		word = sign + strconv.FormatFloat(24*n, 'f', -1, 64) + "h" + rest
	}
	return time.ParseDuration(word)
}

// WaitTime is the value of --wait.
type WaitTime time.Duration

// UnmarshalText parses a duration or "forever".
func (p *WaitTime) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*p = WaitTime(replock.Forever)
		return nil
	}
	d, err := duration(string(text))
	switch {
	case err != nil:
		return errors.New("must be a time such as 90s, 15m, 2h or 1d, or forever")
	case d < 0:
		return errors.New("must not be negative")
	}
	*p = WaitTime(d)
	return nil
}

// Moment is the value of --since or --until.
type Moment time.Time

// UnmarshalText parses a duration before now, a day, or a time. A day or a time without a zone is in UTC.
func (m *Moment) UnmarshalText(raw []byte) error {
	word := strings.TrimSpace(string(raw))
	for _, layout := range []string{time.RFC3339, time.DateTime + "Z07:00", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, word); err == nil {
			*m = Moment(t)
			return nil
		}
	}
	ago, err := duration(word)
	if err != nil || ago < 0 {
		return errors.New("must be a time ago such as 36h or 7d, a day such as 2026-03-07, or 2026-03-07T09:00:00Z")
	}
	*m = Moment(clock.System{}.Now().Add(-ago))
	return nil
}

// ForPID is the value of --for-pid: the process whose end releases the lock.
type ForPID struct {
	PID  int // 0: the caller
	None bool
}

// UnmarshalText parses a pid or "none".
func (f *ForPID) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*f = ForPID{None: true}
		return nil
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid <= 0 {
		return errors.New("must be the number of a process, or none")
	}
	*f = ForPID{PID: pid}
	return nil
}

// Process returns the process, or nil for none. It fails if the process doesn't exist.
func (f ForPID) Process() (*identity.Process, error) {
	if f.None {
		return nil, nil
	}
	pid := f.PID
	if pid == 0 {
		if pid = identity.Caller(); pid <= 1 {
			return nil, fault.New(fault.Usage, "called by process %d, which might never end: name the process that the lock is for with --for-pid PID, or write --for-pid none", pid)
		}
	}
	p, ok := identity.Of(pid)
	if !ok {
		return nil, fault.New(fault.Usage, "--for-pid %d: there is no such process", pid)
	}
	return &p, nil
}
