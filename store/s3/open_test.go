package s3_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/s3"
)

// opened returns the store of a URL, with these credentials, or without any.
func opened(t *testing.T, raw, key string) store.Store {
	t.Helper()
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_ACCESS_KEY_ID", key)
	t.Setenv("AWS_SECRET_ACCESS_KEY", key)
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

// TestOpenAsksOnceForCredentials: the service is asked once for each request of the lock. If
// it has no credentials, the request must fail in time.
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
			if _, err := opened(t, "s3://bucket?endpoint=http://127.0.0.1:1", "").List(context.Background(), "x", ""); err == nil || n.Load() > most {
				t.Errorf("%v after %d requests", err, n.Load())
			}
		})
	}
}

// TestDefaultsModeKeepsTimeouts: AWS_DEFAULTS_MODE doesn't replace the timeouts for
// connecting.
func TestDefaultsModeKeepsTimeouts(t *testing.T) {
	client := awss3.New(awss3.Options{DefaultsMode: aws.DefaultsModeInRegion, HTTPClient: s3.HTTPClient()}).Options().HTTPClient
	if c, ok := client.(*http.Client); !ok || c.Transport.(*http.Transport).TLSHandshakeTimeout != 5*time.Second {
		t.Errorf("the SDK has rebuilt HTTPClient: %T", client)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() }) // it accepts, and answers nothing
	t.Setenv("AWS_DEFAULTS_MODE", "in-region")
	s := opened(t, "s3://bucket?endpoint=https://"+l.Addr().String(), "key")
	ctx, cancel := context.WithTimeout(t.Context(), 1300*time.Millisecond) // in-region has 1.1 s for TLS
	defer cancel()
	if _, err := s.List(ctx, "x", ""); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
}
