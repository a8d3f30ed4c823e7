package s3api_test

import (
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
)

// TestSkewedAndLost: a put might be stored if it was refused for its time, and then sent again
// and not answered.
func TestSkewedAndLost(t *testing.T) {
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			say(403, "RequestTimeTooSkewed", "Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}, "", func(t *testing.T, s store.Store) {
		// The transport repeats reading requests by itself, on another connection.
		for _, of := range []string{"put", "put if absent", "put if match", "delete"} {
			n.Store(0)
			if err := requests[of](t.Context(), s); err == nil || store.Permanent(err) || n.Load() != 2 {
				t.Errorf("%s: %v, %d requests", of, err, n.Load())
			}
		}
	})
}

// TestRetriesByTheEnvironment: no setting for Amazon's own tools makes the SDK repeat a
// request.
func TestRetriesByTheEnvironment(t *testing.T) {
	t.Setenv("AWS_MAX_ATTEMPTS", "5")
	t.Setenv("AWS_RETRY_MODE", "adaptive")
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) { n.Add(1); say(503, "SlowDown")(w, r) }, "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			n.Store(0)
			if err := send(t.Context(), s); err == nil || n.Load() != 1 {
				t.Errorf("%s: %v, %d requests", of, err, n.Load())
			}
		}
	})
}

// TestPutBesideDelete: MinIO refuses a put now and then because another object is
// deleted at that moment, and not for want of a permission.
func TestPutBesideDelete(t *testing.T) {
	var n, refusals atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= refusals.Load() {
			say(403, "AccessDenied")(w, r)
			return
		}
		w.Header().Set("Etag", `"e"`)
	}, "", func(t *testing.T, s store.Store) {
		for of, send := range requests {
			puts := strings.HasPrefix(of, "put")
			for _, refused := range []int32{1, 2} {
				n.Store(0)
				refusals.Store(refused)
				err := send(t.Context(), s)
				wantN, denied := int32(1), true
				if puts {
					wantN, denied = 2, refused == 2
				}
				if errors.Is(err, store.ErrPermission) != denied || !denied && err != nil || n.Load() != wantN {
					t.Errorf("%s, refused %d times: %d requests; %v", of, refused, n.Load(), err)
				}
			}
		}
	})
}
