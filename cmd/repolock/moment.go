package main

import (
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// moment is --since or --until.
type moment time.Time

// UnmarshalText parses a time before now, a day, or a time of a day, in UTC.
func (m *moment) UnmarshalText(raw []byte) error {
	word := strings.TrimSpace(string(raw))
	for _, layout := range []string{time.RFC3339, time.DateTime + "Z07:00", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, word); err == nil {
			*m = moment(t)
			return nil
		}
	}
	ago, err := time.ParseDuration(word)
	if days, ok := strings.CutSuffix(word, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16) // a Duration has 106751 days
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago < 0 {
		return errors.New("must be a time ago such as 36h or 7d, a day such as 2026-03-07, or 2026-03-07T09:00:00Z")
	}
	*m = moment(clock.System{}.Now().Add(-ago))
	return nil
}
