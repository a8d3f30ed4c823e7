//go:build unix

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/freeport"
)

// TestOnlySilenceIsUnreachable: with --if-unreachable run a command is run without its lock if
// the store has answered nothing, or only that it is down. After any other answer, to any
// request, the command isn't run.
func TestOnlySilenceIsUnreachable(t *testing.T) {
	t.Parallel()
	const (
		s3    = "s3://bucket/p?region=us-east-1&path-style=true&endpoint=SCHEME://HOST"
		minio = "minio://HOST/bucket/p?tls=TLS"
		b2    = "b2://bucket/p?endpoint=SCHEME://HOST"
	)
	s3s, all := []string{s3, minio}, []string{s3, minio, b2}
	for _, c := range []struct {
		name   string
		repos  []string
		server func(*testing.T) (scheme, host string)
		code   int
		bare   bool
	}{
		// Silence.
		{"refused", all, refused, exitUnavailable, true},
		{"never answers", all, answers(silent), exitUnavailable, true},
		{"resets before the first byte", all, answers(breaksOff("")), exitUnavailable, true},
		{"closes the handshake", all, closedHandshake, exitUnavailable, true},
		{"502", all, answers(status(502, "")), exitUnavailable, true},
		{"503", all, answers(status(503, "SlowDown")), exitUnavailable, true},
		{"504", all, answers(status(504, "")), exitUnavailable, true},
		// Answers.
		{"breaks off after the first byte", all, answers(breaksOff("HTTP/1.1 2")), exitFailed, false},
		{"breaks off in the header", all, answers(breaksOff("HTTP/1.1 503 Slow Down\r\nContent-Le")), exitFailed, false},
		{"breaks off in the body", all, answers(breaksOff("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n<Error>")), exitFailed, false},
		{"isn't HTTP", all, answers(breaksOff("220 mail ESMTP\r\n")), exitFailed, false},
		{"500", s3s, answers(status(500, "InternalError")), exitFailed, false},
		{"500", []string{b2}, answers(statusB2(500, "internal_error")), exitFailed, false},
		{"520", s3s, answers(status(520, "")), exitFailed, false},
		{"429", s3s, answers(status(429, "TooManyRequests")), exitFailed, false},
		{"429", []string{b2}, answers(statusB2(429, "too_many_requests")), exitFailed, false},
		{"400", s3s, answers(status(400, "InvalidRequest")), exitFailed, false},
		{"400 without a word", s3s, answers(status(400, "")), exitUnfit, false},
		{"400, as to an unknown kind of key", []string{b2}, answers(statusB2(400, "bad_request")), exitUnfit, false},
		{"401", s3s, answers(status(401, "Unauthorized")), exitPermission, false},
		{"401", []string{b2}, answers(statusB2(401, "unauthorized")), exitPermission, false},
		{"403", s3s, answers(status(403, "AccessDenied")), exitPermission, false},
		{"403", []string{b2}, answers(statusB2(403, "access_denied")), exitPermission, false},
		{"403, a wrong key", s3s, answers(status(403, "InvalidAccessKeyId")), exitPermission, false},
		{"404, no bucket", s3s, answers(status(404, "NoSuchBucket")), exitUnavailable, false},
		{"404, strange", s3s, answers(status(404, "NoSuchAccount")), exitFailed, false},
		{"404", []string{b2}, answers(statusB2(404, "not_found")), exitUnfit, false},
		{"405", s3s, answers(status(405, "MethodNotAllowed")), exitFailed, false},
		{"409, quota", s3s, answers(status(409, "QuotaExceeded")), exitFailed, false},
		{"507", s3s, answers(status(507, "XMinioStorageFull")), exitFailed, false},
		{"301", s3s, answers(status(301, "PermanentRedirect")), exitUnfit, false},
		{"a web page", s3s, answers(page), exitUnfit, false},
		{"TLS that isn't trusted", all, untrusted, exitUnfit, false},
		{"TLS of another version", s3s, otherVersion, exitUnfit, false},
		{"no TLS", all, plainAsTLS, exitUnfit, false},
		// One answer is enough.
		{"takes the flag, and then is silent", s3s, answers(then(put, silent)), exitUnavailable, false},
		{"takes the flag, and then is down", s3s, answers(then(put, status(503, "SlowDown"))), exitUnavailable, false},
		{"authorizes, and then is silent", []string{b2}, authorizes(onlyBucket, silent), exitUnavailable, false},
		{"authorizes, and then is down", []string{b2}, authorizes(onlyBucket, statusB2(503, "service_unavailable")), exitUnavailable, false},
		{"authorizes for all buckets, and then is down", []string{b2}, authorizes("null", statusB2(503, "service_unavailable")), exitUnavailable, false},
		{"refuses, and then is down", s3s, once(status(403, "AccessDenied"), status(503, "SlowDown")), exitUnavailable, false},
		{"takes the flag, and lists another prefix", s3s, answers(then(put, otherPrefix)), exitFailed, false},
		{"takes the flag, and lists without an end", s3s, answers(then(put, unending)), exitUnfit, false},
		{"takes the flag, and refuses the listing", s3s, answers(then(put, status(400, "InvalidArgument"))), exitFailed, false},
	} {
		for _, repo := range c.repos {
			backend, _, _ := strings.Cut(repo, ":")
			t.Run(c.name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				scheme, host := c.server(t)
				url := strings.NewReplacer("SCHEME", scheme, "HOST", host, "TLS", fmt.Sprint(scheme == "https")).Replace(repo)
				said := onlySilenceRunsBare(t, url, []string{
					"AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=secret", "B2_APPLICATION_KEY_ID=x", "B2_APPLICATION_KEY=secret",
					"AWS_EC2_METADATA_DISABLED=true",
				}, c.code, c.bare)
				if strings.Contains(said, "secret") {
					t.Errorf("a secret is printed: %s", said)
				}
			})
		}
	}
}

// onlySilenceRunsBare runs a backup that should run bare if the store is unreachable. It
// checks that the backup did, or failed with this exit code, and returns the output.
func onlySilenceRunsBare(t *testing.T, repo string, env []string, want int, bare bool) (said string) {
	t.Helper()
	ran := filepath.Join(t.TempDir(), "ran")
	ttl := "10s" // bounds how long a silent server is asked
	if !bare && want != exitUnavailable {
		ttl = "1h" // an answer counts, however late a busy machine gives it
	}
	cmd := exec.Command("repolock", "-r", repo, "backup", "--ttl", ttl, "--if-unreachable", "run", "--", "touch", ran)
	cmd.Env = append(os.Environ(), env...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	said = stderr.String()
	_, missing := os.Stat(ran)
	if got := missing == nil; got != bare {
		t.Errorf("run without a lock: %v, want %v: %s", got, bare, said)
	}
	if bare {
		want = 0
	}
	code := cmd.ProcessState.ExitCode()
	if code != want {
		t.Errorf("exit code %d, want %d: %s", code, want, said)
	}
	line, _, _ := strings.Cut(said, "\n")
	t.Logf("exit code %d: %s", code, line)
	return said
}

// refused returns a port that stays without a listener: no server of another test can take it.
func refused(t *testing.T) (scheme, host string) {
	port, err := freeport.Free()
	if err != nil {
		t.Fatal(err)
	}
	return "http", fmt.Sprintf("127.0.0.1:%d", port)
}

// closedHandshake is a port that accepts connections and closes them.
func closedHandshake(t *testing.T) (scheme, host string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	}()
	return "https", l.Addr().String()
}

func untrusted(t *testing.T) (scheme, host string) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.StartTLS()
	t.Cleanup(s.Close)
	return "https", s.Listener.Addr().String()
}

func otherVersion(t *testing.T) (scheme, host string) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.Config.ErrorLog = log.New(io.Discard, "", 0)
	s.TLS = &tls.Config{MaxVersion: tls.VersionTLS10, MinVersion: tls.VersionTLS10}
	s.StartTLS()
	t.Cleanup(s.Close)
	return "https", s.Listener.Addr().String()
}

func plainAsTLS(t *testing.T) (scheme, host string) {
	_, host = answers(status(200, ""))(t)
	return "https", host
}

func answers(h http.HandlerFunc) func(*testing.T) (scheme, host string) {
	return func(t *testing.T) (scheme, host string) {
		s := httptest.NewServer(h)
		t.Cleanup(s.CloseClientConnections)
		return "http", s.Listener.Addr().String()
	}
}

func silent(_ http.ResponseWriter, r *http.Request) {
	select {
	case <-r.Context().Done():
	case <-time.After(time.Hour):
	}
}

// breaksOff begins an answer and breaks it off.
func breaksOff(said string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		c, _, err := w.(http.Hijacker).Hijack()
		if err != nil {
			panic(err)
		}
		_, _ = io.WriteString(c, said)
		c.Close()
	}
}

func status(code int, said string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", "application/xml")
		w.WriteHeader(code)
		if said != "" {
			fmt.Fprintf(w, "<Error><Code>%s</Code><Message>Something.</Message></Error>", said)
		}
	}
}

func statusB2(code int, said string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(code)
		fmt.Fprintf(w, `{"status":%d,"code":%q,"message":"Something."}`, code, said)
	}
}

// once is a server that answers its first request with one, and all others with other. Each
// test has its own: the last answer is the same, however many requests there are.
func once(one, other http.HandlerFunc) func(*testing.T) (scheme, host string) {
	return func(t *testing.T) (scheme, host string) {
		var n atomic.Int32
		return answers(func(w http.ResponseWriter, r *http.Request) {
			if n.Add(1) == 1 {
				one(w, r)
				return
			}
			other(w, r)
		})(t)
	}
}

// onlyBucket is the list of buckets of a restricted key.
const onlyBucket = `[{"id":"b","name":"bucket"}]`

// authorizes accepts every application key, for the buckets, and passes all other requests to
// other.
func authorizes(buckets string, other http.HandlerFunc) func(*testing.T) (scheme, host string) {
	return answers(func(w http.ResponseWriter, r *http.Request) {
		if !strings.HasSuffix(r.URL.Path, "/b2_authorize_account") {
			other(w, r)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintf(w, `{"accountId":"a","authorizationToken":"t","apiInfo":{"storageApi":{"apiUrl":"http://%[1]s","downloadUrl":"http://%[1]s",`+
			`"allowed":{"buckets":`+buckets+`,"capabilities":["listBuckets","listFiles","readFiles","writeFiles","deleteFiles"]}}}}`, r.Host)
	})
}

func page(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "text/html")
	fmt.Fprint(w, "<html><body>Welcome!</body></html>")
}

func put(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
}

func otherPrefix(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, `<ListBucketResult><Name>bucket</Name><Prefix>another/</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>`+
		`<Contents><Key>another/x</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag><Size>1</Size></Contents></ListBucketResult>`)
}

// unending is an empty page of a listing whose cursor doesn't advance.
func unending(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	fmt.Fprint(w, `<ListBucketResult><Name>bucket</Name><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>`+
		`<NextContinuationToken>token</NextContinuationToken></ListBucketResult>`)
}

// then passes writing requests to one handler, and all others to another.
func then(write, other http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodPut || r.Method == http.MethodDelete {
			write(w, r)
			return
		}
		other(w, r)
	}
}
