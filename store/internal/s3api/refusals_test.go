package s3api_test

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"unicode"

	"github.com/repolock/repolock/store"
)

// TestServersOwnFailure: a failure of the server isn't permanent, whatever its code.
func TestServersOwnFailure(t *testing.T) {
	for _, code := range []string{"NoSuchBucket", "NoSuchKey", "ExpiredToken", "InvalidRequest"} {
		both(t, say(503, code), "", func(t *testing.T, s store.Store) {
			for of, send := range requests {
				if err := send(t.Context(), s); err == nil || store.Permanent(err) {
					t.Errorf("%s: %s: %v", code, of, err)
				}
			}
		})
	}
}

// TestRegionInTheBody: MinIO's answer to a request that is signed for another region names the
// region only in the body.
func TestRegionInTheBody(t *testing.T) {
	both(t, xmlError(400, "<Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region>"), "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			if err := send(t.Context(), s); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "region=eu-west-1") {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

func xmlError(status int, inner string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(status)
		fmt.Fprintf(w, "<Error>%s</Error>", inner)
	}
}

// TestAlert: most servers that require TLS answer a client without it with an alert.
func TestAlert(t *testing.T) {
	both(t, func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		fmt.Fprint(conn, "\x15\x03\x01\x00\x02\x02\x46")
	}, "", func(t *testing.T, s store.Store) {
		for _, of := range []string{"list", "get", "delete"} {
			if err := requests[of](t.Context(), s); !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "wants TLS") {
				t.Errorf("%s: %v", of, err)
			}
		}
	})
}

// TestHostileWords: a server's text becomes one printable line.
func TestHostileWords(t *testing.T) {
	const words = "a&#10;b&#x9b;31m&#13;c"
	for _, code := range []string{"OperationAborted", words, "AccessDenied" + words, strings.Repeat("x", 10000)} {
		inner := "<Code>" + code + "</Code><Message>" + words + strings.Repeat("é", 300) + "</Message>"
		both(t, xmlError(409, inner), "", func(t *testing.T, s store.Store) {
			for of, send := range requests {
				err := send(t.Context(), s)
				if err == nil {
					t.Fatalf("%s: no error", of)
				}
				if i := strings.IndexFunc(err.Error(), func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }); i >= 0 || len(err.Error()) > 600 {
					t.Errorf("%s: %q", of, err)
				}
			}
		})
	}
}

// TestThrottledByAPage: a proxy can ask for fewer requests by a page of HTML. That isn't
// permanent.
func TestThrottledByAPage(t *testing.T) {
	for _, status := range []int{408, 429} {
		both(t, page(status), "", func(t *testing.T, s store.Store) {
			for of, send := range requests {
				if err := send(t.Context(), s); err == nil || store.Permanent(err) {
					t.Errorf("%d: %s: %v", status, of, err)
				}
			}
		})
	}
}
