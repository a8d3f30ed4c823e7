package port

import (
	"net/url"
	"testing"
)

// TestOf: Of accepts a URL without a port, or with one that a server can have.
func TestOf(t *testing.T) {
	for host, want := range map[string]uint16{"host": 0, "[::1]": 0, "host:1": 1, "host:00080": 80, "[::1]:65535": 65535} {
		if got, err := Of(&url.URL{Host: host}); err != nil || got != want {
			t.Errorf("%s: %d, %v", host, got, err)
		}
	}
	for host, says := range map[string]string{
		"host:0": "its port isn't from 1 to 65535", "host:65536": "its port isn't from 1 to 65535", "[::1]:99999": "its port isn't from 1 to 65535",
		"host:18446744073709551617": "its port isn't from 1 to 65535", "host:": "there is no port after the colon",
	} {
		if got, err := Of(&url.URL{Host: host}); err == nil || err.Error() != says {
			t.Errorf("%s: %d, %v", host, got, err)
		}
	}
}
