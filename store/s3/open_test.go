package s3_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// opened returns the store of a URL, without credentials from the environment or from files.
func opened(t *testing.T, raw string) store.Store {
	t.Helper()
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	missing := filepath.Join(t.TempDir(), "missing")
	t.Setenv("AWS_CONFIG_FILE", missing)
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", missing)
	u, err := url.Parse(raw)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(t.Context(), u)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOpenAsksOnceForCredentials: a service that has none is asked once for each request of
// the lock, which has to fail in time.
func TestOpenAsksOnceForCredentials(t *testing.T) {
	var n atomic.Int32
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	}))
	t.Cleanup(server.Close)
	for name, most := range map[string]int32{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": 1,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT":  2, // a token, and the role
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv(name, server.URL)
			n.Store(0)
			if _, err := opened(t, "s3://bucket?endpoint=http://127.0.0.1:1").List(context.Background(), "x", ""); err == nil || n.Load() > most {
				t.Errorf("%v after %d requests", err, n.Load())
			}
		})
	}
}
