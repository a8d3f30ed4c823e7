package text

import (
	"testing"
	"time"
)

// TestDuration: a length of time has at most two units, which follow one another.
func TestDuration(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-time.Second:                          "0s",
		0:                                     "0s",
		400 * time.Millisecond:                "0s",
		600 * time.Millisecond:                "1s",
		59*time.Second + 600*time.Millisecond: "1m",
		134 * time.Second:                     "2m14s",
		time.Hour:                             "1h",
		time.Hour + 5*time.Second:             "1h",
		134 * time.Minute:                     "2h14m",
		24 * time.Hour:                        "1d",
		76 * time.Hour:                        "3d4h",
		76*time.Hour + 3*time.Minute:          "3d4h",
		1000 * 24 * time.Hour:                 "1000d",
	} {
		if got := Duration(d); got != want {
			t.Errorf("Duration(%v) is %q, want %q", d, got, want)
		}
	}
	if got := Ago(3 * time.Second); got != "3s ago" {
		t.Errorf("Ago is %q", got)
	}
}
