package text

import (
	"fmt"
	"time"
)

// Duration formats a length of time as a person says it, in at most two units: 34s, 2m14s, 2h14m,
// 3d4h.
func Duration(d time.Duration) string {
	s := int(max(d, 0).Round(time.Second) / time.Second)
	units := [...]struct {
		name    string
		seconds int
	}{{"d", 24 * 60 * 60}, {"h", 60 * 60}, {"m", 60}, {"s", 1}}
	for i, u := range units {
		if s < u.seconds || u.seconds == 1 {
			continue
		}
		large, next := s/u.seconds, units[i+1]
		small := s % u.seconds / next.seconds
		if small == 0 {
			return fmt.Sprintf("%d%s", large, u.name)
		}
		return fmt.Sprintf("%d%s%d%s", large, u.name, small, next.name)
	}
	return fmt.Sprintf("%ds", s)
}

// Ago is Duration of the time since something happened.
func Ago(d time.Duration) string { return Duration(d) + " ago" }
