package httptransport

import (
	"net/http"
	"testing"
)

type decorated struct{ http.RoundTripper }

// TestBareWithoutDefaultTransport: a program can replace http.DefaultTransport, and a proxy is
// used even so.
func TestBareWithoutDefaultTransport(t *testing.T) {
	own := http.DefaultTransport
	t.Cleanup(func() { http.DefaultTransport = own })
	http.DefaultTransport = decorated{own}
	if bare := Bare(); bare.Proxy == nil || bare.MaxIdleConns == 0 || bare.TLSHandshakeTimeout == 0 {
		t.Errorf("%+v", bare)
	}
}
