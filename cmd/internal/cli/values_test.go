package cli

import (
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestDuration: a time can have days.
func TestDuration(t *testing.T) {
	for word, want := range map[string]time.Duration{
		"1d": 24 * time.Hour, "1d12h": 36 * time.Hour, "0.5d": 12 * time.Hour, "-2d": -48 * time.Hour, "90s": 90 * time.Second, "1h30m": 90 * time.Minute, "0": 0,
		"d": -1, "1d2": -1, "1d1d": -1, "1D": -1, "": -1, "2h1d": -1, "200000d": -1, "--1d": -1, "NaNd": -1, "Infd": -1, "1e3d": 1000 * 24 * time.Hour,
	} {
		got, err := duration(word)
		assert.That(t, (err != nil) == (want == -1) && (err != nil || got == want), "%q: %v, %v", word, got, err)
	}
}
