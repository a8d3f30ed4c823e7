//go:build unix && minio

package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
)

// TestUnusableStoreIsNamed: a store that cannot be used is reported in one line, soon, with the
// right exit code, and the command is not run.
func TestUnusableStoreIsNamed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		kinds []kind
		at    where
		env   []string
		code  int
		says  string
	}{
		{"no bucket", kinds, wrongBucket, nil, 69, "nobody-has-this-bucket"},
		{"wrong region", []kind{onS3, onMinIO}, wrongRegion, nil, 78, "region"},
		{"expired", []kind{onS3, onMinIO}, answers(400, "ExpiredToken"), nil, 77, "expired"},
		{"expired", []kind{onB2}, answers(401, "expired_auth_token"), nil, 77, "key"},
		{"wrong secret", kinds, asItIs, wrong("AWS_SECRET_ACCESS_KEY", "MINIO_SECRET_KEY", "B2_APPLICATION_KEY"), 77, "permission denied"},
		{"wrong user", kinds, asItIs, wrong("AWS_ACCESS_KEY_ID", "MINIO_ACCESS_KEY", "B2_APPLICATION_KEY_ID"), 77, "permission denied"},
		{"no credentials", kinds, asItIs, none, 78, "wrong configuration"},
		{"TLS to a plain port", kinds, useTLS, nil, 78, "TLS"},
		{"no TLS to a TLS port", kinds, plainToTLS, nil, 78, "wrong configuration"},
		{"unknown certificate", kinds, unknownCertificate, nil, 78, "certificate"},
		{"a web site", kinds, webSite(200), nil, 78, "wrong configuration"},
		{"a web site's 404", kinds, webSite(404), nil, 78, "wrong configuration"},
		{"no listener", kinds, closedPort, nil, 69, "refused"},
		{"no answer", kinds, hangs, nil, 69, "no answer"},
		{"no such host", []kind{onS3, onMinIO}, noHost, nil, 69, "no-such-host.invalid"},
		{"unknown parameter", kinds, unknownParameter, nil, 64, "unknown parameter"},
	} {
		for _, k := range c.kinds {
			t.Run(c.name+", "+k.name, func(t *testing.T) {
				t.Parallel()
				p := k.on(k.shared(t))
				host, replace := c.at(t, p)
				s := p.site(t).at(strings.NewReplacer(replace...).Replace(p.url(host, p.bucket)))
				s.env = c.env
				for _, args := range [][]string{{"status"}, {"backup", "--", "touch", "ran"}, {"prune", "--", "touch", "ran"}} {
					s.fails(c.code, c.says, args...)
				}
				if s.exists("ran") {
					t.Error("the command was run")
				}
			})
		}
	}
}

// soon is far longer than repolock waits for requests. Even a busy machine doesn't reach it.
const soon = 3 * time.Minute

// fails checks that a repolock fails soon, with this exit code and this message.
func (s *site) fails(code int, says string, args ...string) {
	s.t.Helper()
	start := time.Now()
	p := s.start(args...)
	got, took := p.code(), time.Since(start)
	stderr := p.stderr.String()
	if got != code || took > soon {
		s.t.Errorf("%s: exit code %d after %v, want %d: %s", args[0], got, took.Round(time.Millisecond), code, stderr)
	}
	lines := strings.Split(strings.TrimSuffix(stderr, "\n"), "\n")
	if code == 69 && strings.Contains(lines[0], "warning: a lock is left to expire") {
		lines = lines[1:] // without an answer repolock can't know whether it is there
	}
	hinted := len(lines) == 2 && strings.HasPrefix(lines[1], "repolock: hint: ")
	if !strings.HasPrefix(lines[0], "repolock: error: ") || len(lines) > 1 && !hinted || len(lines[0]) > 600 {
		s.t.Errorf("%s: is not one error with its hint: %s", args[0], stderr)
	}
	if !strings.Contains(lines[0], says) {
		s.t.Errorf("%s: doesn't say %q: %s", args[0], says, stderr)
	}
	if strings.Contains(stderr, miniotest.Password) || strings.Contains(stderr, b2Key) || strings.Contains(stderr, wrongValue) {
		s.t.Errorf("%s: a secret in the message: %s", args[0], stderr)
	}
}

// where returns a host, and replacements in the URL.
type where = func(t *testing.T, p place) (host string, replace []string)

func asItIs(_ *testing.T, p place) (string, []string) { return p.host(), nil }

func wrongBucket(_ *testing.T, p place) (string, []string) {
	return p.host(), []string{p.bucket, "nobody-has-this-bucket"}
}

func unknownParameter(_ *testing.T, p place) (string, []string) {
	return p.host(), []string{"?", "?colour=blue&"}
}

// wrongRegion is a server that checks the region of a signature.
func wrongRegion(t *testing.T, _ place) (string, []string) {
	s := miniotest.Start(t, "MINIO_SITE_REGION=eu-central-1")
	// It is ready before it knows its region.
	c, err := minio.New(strings.TrimPrefix(s.Endpoint(), "http://"), &minio.Options{
		Creds: keys.NewStaticV4(miniotest.User, miniotest.Password, ""), Region: "us-east-1", MaxRetries: 1,
	})
	for end := time.Now().Add(hang); err == nil; time.Sleep(20 * time.Millisecond) {
		for o := range c.ListObjects(t.Context(), "a-bucket", minio.ListObjectsOptions{}) {
			if minio.ToErrorResponse(o.Err).Code == "AuthorizationHeaderMalformed" {
				return strings.TrimPrefix(s.Endpoint(), "http://"), nil
			}
		}
		if time.Now().After(end) {
			t.Fatal("it doesn't mind its region")
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	return strings.TrimPrefix(s.Endpoint(), "http://"), nil
}

// answers is a server that refuses all requests.
func answers(status int, code string) where {
	return func(t *testing.T, p place) (string, []string) {
		return proxied(t, p, proxy.Behaviour{Decide: func(proxy.Request) proxy.Fault {
			return proxy.Fault{Status: status, Code: code}
		}}).Host(), nil
	}
}

func useTLS(_ *testing.T, p place) (string, []string) {
	return p.host(), []string{"http://", "https://", "tls=false", "tls=true"}
}

func tlsServer(t *testing.T, _ place) (string, []string) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return strings.TrimPrefix(s.URL, "https://"), nil
}

// plainToTLS is a port that requires TLS, and says so to a client that speaks without. (Go's
// own servers say it too, and then often reset the connection before the answer arrives.)
func plainToTLS(t *testing.T, _ place) (string, []string) {
	return webSite(http.StatusBadRequest)(t, place{})
}

func unknownCertificate(t *testing.T, p place) (string, []string) {
	host, _ := tlsServer(t, p)
	_, replace := useTLS(t, p)
	return host, replace
}

// webSite is a server with web pages for people.
func webSite(status int) where {
	return func(t *testing.T, _ place) (string, []string) {
		s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Type", "text/html")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, "<!DOCTYPE html><html><body>\n<p>Welcome.<br></p>\n</body></html>\n")
		}))
		t.Cleanup(s.Close)
		return strings.TrimPrefix(s.URL, "http://"), nil
	}
}

func closedPort(t *testing.T, _ place) (string, []string) {
	n, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf("127.0.0.1:%d", n), nil
}

func hangs(t *testing.T, p place) (string, []string) {
	return proxied(t, p, proxy.Behaviour{Blackhole: true}).Host(), nil
}

func noHost(*testing.T, place) (string, []string) { return "no-such-host.invalid:9000", nil }

const wrongValue = "nobody-has-this-value"

// wrong gives variables another value.
func wrong(names ...string) (env []string) {
	for _, name := range names {
		env = append(env, name+"="+wrongValue)
	}
	return env
}

// none empties every variable in which drivers look for credentials.
var none = []string{
	"AWS_ACCESS_KEY_ID=", "AWS_SECRET_ACCESS_KEY=", "MINIO_ACCESS_KEY=", "MINIO_SECRET_KEY=",
	"B2_APPLICATION_KEY_ID=", "B2_APPLICATION_KEY=", "HOME=/nonexistent",
}
