//go:build unix

package main

import (
	"crypto/tls"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
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
		{"refused", all, refused, fault.ExitUnavailable, true},
		{"never answers", all, answers(silent), fault.ExitUnavailable, true},
		{"resets before the first byte", all, answers(breaksOff("")), fault.ExitUnavailable, true},
		{"closes the handshake", all, closedHandshake, fault.ExitUnavailable, true},
		{"502", all, answers(status(502, "")), fault.ExitUnavailable, true},
		{"503", all, answers(status(503, "")), fault.ExitUnavailable, true},
		{"504", all, answers(status(504, "")), fault.ExitUnavailable, true},
		// Answers.
		{"breaks off after the first byte", all, answers(breaksOff("HTTP/1.1 2")), fault.ExitFailed, false},
		{"breaks off in the header", all, answers(breaksOff("HTTP/1.1 503 Slow Down\r\nContent-Le")), fault.ExitFailed, false},
		{"breaks off in the body", all, answers(breaksOff("HTTP/1.1 403 Forbidden\r\nContent-Length: 100\r\n\r\n<Error>")), fault.ExitFailed, false},
		{"isn't HTTP", all, answers(breaksOff("220 mail ESMTP\r\n")), fault.ExitUnfit, false},
		{"500", s3s, answers(status(500, "InternalError")), fault.ExitFailed, false},
		{"500", []string{b2}, answers(statusB2(500, "internal_error")), fault.ExitFailed, false},
		{"503, in the store's words", s3s, answers(status(503, "SlowDown")), fault.ExitFailed, false},
		{"503, in the store's words", []string{b2}, answers(statusB2(503, "service_unavailable")), fault.ExitFailed, false},
		{"520", s3s, answers(status(520, "")), fault.ExitFailed, false},
		{"429", s3s, answers(status(429, "TooManyRequests")), fault.ExitFailed, false},
		{"429", []string{b2}, answers(statusB2(429, "too_many_requests")), fault.ExitFailed, false},
		{"400", s3s, answers(status(400, "InvalidRequest")), fault.ExitFailed, false},
		{"400 without a word", s3s, answers(status(400, "")), fault.ExitUnfit, false},
		{"400, as to an unknown kind of key", []string{b2}, answers(statusB2(400, "bad_request")), fault.ExitUnfit, false},
		{"401", s3s, answers(status(401, "Unauthorized")), fault.ExitPermission, false},
		{"401", []string{b2}, answers(statusB2(401, "unauthorized")), fault.ExitPermission, false},
		{"403", s3s, answers(status(403, "AccessDenied")), fault.ExitPermission, false},
		{"403", []string{b2}, answers(statusB2(403, "access_denied")), fault.ExitPermission, false},
		{"403, a wrong key", s3s, answers(status(403, "InvalidAccessKeyId")), fault.ExitPermission, false},
		{"404, no bucket", s3s, answers(status(404, "NoSuchBucket")), fault.ExitNotThere, false},
		{"404, strange", s3s, answers(status(404, "NoSuchAccount")), fault.ExitFailed, false},
		{"404", []string{b2}, answers(statusB2(404, "not_found")), fault.ExitUnfit, false},
		{"405", s3s, answers(status(405, "MethodNotAllowed")), fault.ExitFailed, false},
		{"409, quota", s3s, answers(status(409, "QuotaExceeded")), fault.ExitFailed, false},
		{"507", s3s, answers(status(507, "XMinioStorageFull")), fault.ExitFailed, false},
		{"301", s3s, answers(status(301, "PermanentRedirect")), fault.ExitUnfit, false},
		{"a web page", s3s, answers(says(200, "html", "<html><body>Welcome!</body></html>")), fault.ExitUnfit, false},
		{"TLS that isn't trusted", all, untrusted(nil), fault.ExitUnfit, false},
		{"TLS of another version", s3s, untrusted(&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}), fault.ExitUnfit, false},
		{"no TLS", all, plainAsTLS, fault.ExitUnfit, false},
		// One answer is enough.
		{"takes the flag, and then is silent", s3s, answers(then(put, silent)), fault.ExitUnavailable, false},
		{"takes the flag, and then is down", s3s, answers(then(put, status(503, ""))), fault.ExitUnavailable, false},
		{"authorizes, and then is silent", []string{b2}, authorizes(onlyBucket, silent), fault.ExitUnavailable, false},
		{"authorizes, and then is down", []string{b2}, authorizes(onlyBucket, status(503, "")), fault.ExitUnavailable, false},
		{"authorizes for all buckets, and then is down", []string{b2}, authorizes("null", status(503, "")), fault.ExitUnavailable, false},
		{"refuses, and then is down", s3s, once(status(403, "AccessDenied"), status(503, "")), fault.ExitPermission, false},
		{"takes the flag, and lists another prefix", s3s, answers(then(put, says(200, "xml", otherPrefix))), fault.ExitFailed, false},
		{"takes the flag, and lists without an end", s3s, answers(then(put, says(200, "xml", unending))), fault.ExitUnfit, false},
		{"takes the flag, and refuses the listing", s3s, answers(then(put, status(400, "InvalidArgument"))), fault.ExitFailed, false},
	} {
		for _, repo := range c.repos {
			backend, _, _ := strings.Cut(repo, ":")
			t.Run(c.name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				scheme, host := c.server(t)
				url := strings.NewReplacer("SCHEME", scheme, "HOST", host, "TLS", fmt.Sprint(scheme == "https")).Replace(repo)
				said := onlySilenceRunsBare(t, url, nil, c.code, c.bare)
				assert.That(t, !strings.Contains(said, "secret"), "a secret is printed: %s", said)
			})
		}
	}
}

// TestProxyRefuses: behind a proxy that can't reach the store, or is down, a store is unreachable. A proxy that
// forbids the way to it, or wants a password, is a wrong configuration. The message names the proxy.
func TestProxyRefuses(t *testing.T) {
	t.Parallel()
	const s3, minio, b2 = "s3://bucket/p?region=us-east-1&endpoint=https://store.example", "minio://store.example/bucket/p", "b2://bucket/p?endpoint=https://store.example"
	const plain = "s3://bucket/p?region=us-east-1&endpoint=http://store.example"
	for _, c := range []struct {
		status, code int
		bare         bool
		repos        []string
	}{
		{502, 0, true, []string{s3, minio, b2, plain}},
		{503, 0, true, []string{s3, b2}},
		{0, 0, true, []string{s3, b2, plain}}, // not there
		{403, fault.ExitUnfit, false, []string{s3, minio, b2}},
		{407, fault.ExitUnfit, false, []string{s3, minio, b2, plain}},
	} {
		for _, repo := range c.repos {
			t.Run(fmt.Sprintf("%d/%s", c.status, repo), func(t *testing.T) {
				t.Parallel()
				proxy := refused
				if c.status != 0 {
					proxy = answers(status(c.status, ""))
				}
				_, host := proxy(t)
				env := []string{"HTTPS_PROXY=http://" + host, "HTTP_PROXY=http://" + host, "NO_PROXY=", "B2_APPLICATION_KEY_ID=id", "B2_APPLICATION_KEY=secret"}
				said := onlySilenceRunsBare(t, repo, env, c.code, c.bare)
				assert.That(t, strings.Contains(said, "the proxy "+host), "the proxy isn't named: %s", said)
			})
		}
	}
}

// onlySilenceRunsBare checks that a backup runs bare, or fails with this exit code, and returns what it
// prints. It runs in this process if that has no environment of its own. If a starved machine answers
// the last request too late, it is run again.
func onlySilenceRunsBare(t *testing.T, repo string, env []string, want int, bare bool) (said string) {
	t.Helper()
	ran := filepath.Join(t.TempDir(), "ran")
	ttl := "10s" // bounds how long a silent server is asked
	if !bare {
		ttl = "1h" // an answer counts, however late a busy machine gives it
	}
	args := []string{"-r", repo, "backup", "--ttl", ttl, "--if-unreachable", "run", "--", "touch", ran}
	var code int
	until(t, "the store answers in time", func() bool {
		_ = os.Remove(ran)
		if env == nil {
			code, _, said = call(args...)
		} else {
			cmd := exec.Command("repolock", args...)
			cmd.Env = append(os.Environ(), env...)
			out, err := cmd.CombinedOutput()
			code, said = exitOf(t, err), string(out)
		}
		_, err := os.Stat(ran)
		silent := env == nil && (err == nil) == bare && (bare || code == want) // its answer never comes
		return silent || !slow(said)
	})
	_, err := os.Stat(ran)
	assert.That(t, (err == nil) == bare, "run without a lock: %v, want %v: %s", err == nil, bare, said)
	if bare {
		want = 0
	}
	assert.That(t, code == want, "exit code %d, want %d: %s", code, want, said)
	return said
}

// slow reports whether an answer came too late, as on a starved machine.
func slow(said string) bool { return strings.Contains(said, "no answer within") }

// refused returns a port that stays without a listener: no server of another test can take it.
func refused(t *testing.T) (scheme, host string) {
	port, err := freeport.Free()
	assert.OK(t, err)
	return "http", fmt.Sprintf("127.0.0.1:%d", port)
}

// closedHandshake is a port that accepts connections and closes them.
func closedHandshake(t *testing.T) (scheme, host string) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	assert.OK(t, err)
	t.Cleanup(func() { l.Close() })
	go func() {
		for c, err := l.Accept(); err == nil; c, err = l.Accept() {
			_, _ = c.Read(make([]byte, 1))
			c.Close()
		}
	}()
	return "https", l.Addr().String()
}

// untrusted is a server with a certificate that no authority has signed.
func untrusted(versions *tls.Config) func(t *testing.T) (scheme, host string) {
	return func(t *testing.T) (scheme, host string) {
		s := httptest.NewUnstartedServer(http.NotFoundHandler())
		s.Config.ErrorLog, s.TLS = log.New(io.Discard, "", 0), versions
		s.StartTLS()
		t.Cleanup(s.Close)
		return "https", s.Listener.Addr().String()
	}
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

// says is an answer of a kind: "xml", "json" or "html".
func says(code int, kind, body string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		w.Header().Set("Content-Type", map[string]string{"xml": "application/xml", "json": "application/json", "html": "text/html"}[kind])
		w.WriteHeader(code)
		_, _ = io.WriteString(w, body)
	}
}

func status(code int, said string) http.HandlerFunc {
	if said != "" {
		said = "<Error><Code>" + said + "</Code><Message>Something.</Message></Error>"
	}
	return says(code, "xml", said)
}

func statusB2(code int, said string) http.HandlerFunc {
	return says(code, "json", fmt.Sprintf(`{"status":%d,"code":%q,"message":"Something."}`, code, said))
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

func put(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	w.Header().Set("ETag", `"0123456789abcdef0123456789abcdef"`)
}

// Answers to a listing: another prefix, and an empty page whose cursor doesn't advance.
const (
	otherPrefix = `<ListBucketResult><Name>bucket</Name><Prefix>another/</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated>` +
		`<Contents><Key>another/x</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"x"</ETag><Size>1</Size></Contents></ListBucketResult>`
	unending = `<ListBucketResult><Name>bucket</Name><MaxKeys>1000</MaxKeys><IsTruncated>true</IsTruncated>` +
		`<NextContinuationToken>token</NextContinuationToken></ListBucketResult>`
)

// then passes writing requests to one handler, and all others to another once a server has got the first of these;
// until then it lists nothing.
func then(write, other http.HandlerFunc) http.HandlerFunc {
	var written sync.Map // servers
	return func(w http.ResponseWriter, r *http.Request) {
		_, begun := written.Load(r.Host)
		switch {
		case r.Method == http.MethodPut || r.Method == http.MethodDelete:
			written.Store(r.Host, true)
			write(w, r)
		case begun:
			other(w, r)
		default:
			says(200, "xml", `<ListBucketResult><Name>bucket</Name><Prefix>`+r.URL.Query().Get("prefix")+`</Prefix><MaxKeys>1000</MaxKeys><IsTruncated>false</IsTruncated></ListBucketResult>`)(w, r)
		}
	}
}

// quirky is a server with some quirks, and a record of its bucket.
type quirky struct {
	*proxy.Proxy
	*desk
}

func newQuirky(t *testing.T, backend, params string, quirks proxy.Quirks) *quirky {
	server := httptest.NewServer(fakes3.New("bucket"))
	t.Cleanup(server.Close)
	p, err := proxy.New(server.URL)
	assert.OK(t, err)
	t.Cleanup(p.Close)
	// A new signature is of the plain body: minio-go sends signed chunks.
	p.Behave(proxy.Behaviour{Quirks: quirks, Sign: &proxy.Credentials{User: "secret", Password: "secret"}})
	return &quirky{p, newDeskOn(t, map[string]string{
		"s3": "s3://bucket/p?region=us-east-1&endpoint=" + p.URL(), "minio": "minio://" + p.Host() + "/bucket/p?tls=false",
	}[backend]+params)}
}

// repolock runs repolock, in this process unless the command has a keeper, which has an environment of its own.
func (q *quirky) repolock(args ...string) (code int, stdout, stderr string) {
	if slices.Contains([]string{"acquire", "renew", "release"}, args[0]) {
		return q.desk.repolock(args...)
	}
	return call(append([]string{"-r", q.desk.repo}, args...)...)
}

// runs runs repolock, which must exit with this code, and returns its output.
func (q *quirky) runs(want int, args ...string) string {
	q.t.Helper()
	code, stdout, stderr := q.repolock(args...)
	assert.That(q.t, code == want, "%q: exit code %d, want %d: %s", args, code, want, stderr)
	return stdout + stderr
}

// shared acquires a shared lock that lasts longer than the test, and returns its token. It
// is renewed only if renew is called, so that no row depends on speed.
func (q *quirky) shared() (token string) {
	q.t.Helper()
	return q.acquire("--shared", "--ttl", "1h").Token
}

// prune starts a prune that must wait for its lock, and returns when it waits. end waits until the prune has succeeded.
func (q *quirky) prune() (end func()) {
	q.t.Helper()
	cmd := q.command("repolock", "prune", "--wait", "1h", "--", "true")
	var stderr said
	cmd.Stderr = &stderr
	assert.OK(q.t, cmd.Start())
	until(q.t, "it waits", func() bool { return strings.Contains(stderr.String(), "waiting for the exclusive lock") })
	return func() {
		q.t.Helper()
		code := exitOf(q.t, cmd.Wait())
		assert.That(q.t, code == 0, "the waiter: exit code %d: %s", code, stderr.String())
	}
}

// oneDoctor lets the doctors run one by one: each sends its requests as fast as it can, and
// all together could make one another wait for longer than a doctor waits for an answer.
var oneDoctor sync.Mutex

// doctor returns what doctor says, which must find the server fit. If a starved machine answers
// a request only after the 10 s for which doctor waits, and the next one after the second that is left, doctor
// says so, and is run again.
func (q *quirky) doctor() (says string) {
	q.t.Helper()
	oneDoctor.Lock()
	defer oneDoctor.Unlock()
	until(q.t, "doctor is answered in time", func() bool {
		code, stdout, stderr := q.repolock("doctor")
		says = stdout + stderr
		assert.Need(q.t, code == 0 || strings.Contains(says, "no answer within "), "doctor: exit code %d: %s", code, says)
		return code == 0
	})
	return says
}

// TestQuirks: on real servers that aren't quite S3, locks are acquired, renewed, refused and
// waited for, exclusion holds, and doctor finds the servers fit.
func TestQuirks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quirks  proxy.Quirks
		backend string // whose doctor runs in the short suite: it sends a thousand requests
		says    string // doctor
	}{
		"none":                                 {proxy.Quirks{}, "", "conditional puts passed every test"},
		"a key is listed twice":                {proxy.Quirks{Twice: true}, "", "conditional puts passed every test"},
		"a page in no order now and then":      {proxy.Quirks{Disordered: true}, "", "conditional puts passed every test"},
		"an empty answer is called a web page": {proxy.Quirks{Web: true}, "", "conditional puts passed every test"},
		"a put is accepted now and then":       {proxy.Quirks{Web: true, Accepted: true}, "", "fit"},
		"all of these":                         {proxy.Quirks{Twice: true, Disordered: true, Web: true, Accepted: true}, "minio", "fit"},
		"a delete marker counts as an object":  {proxy.Quirks{Markers: true}, "s3", "a delete marker"},
		"a policy forbids conditional puts":    {proxy.Quirks{Refuses: proxy.Fault{Status: 403, Code: "AccessDenied"}}, "s3", "no such condition (conditional put not supported: "},
		"conditional puts are conflicts":       {proxy.Quirks{Refuses: proxy.Fault{Status: 409, Code: "Conflict"}}, "minio", "no such condition (another write"},
		"If-Match is taken without quotes":     {proxy.Quirks{Unquoted: true}, "minio", "if-match=unquoted"},
	} {
		for _, backend := range []string{"s3", "minio"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				q := newQuirky(t, backend, "", c.quirks)
				q.runs(0, "prune", "--", "true")
				q.runs(0, "prune", "--", "true")
				token := q.shared()
				q.runs(fault.ExitHeld, "prune", "--", "true")
				end := q.prune()
				for range 2 {
					code, _, said := q.repolock("renew", token)
					if code != 0 && c.quirks.Accepted { // a put was answered 202
						code, _, said = q.repolock("renew", token)
					}
					assert.That(t, code == 0, "renew: exit code %d: %s", code, said)
				}
				q.runs(0, "release", token)
				end()
				if rounds.Fewer(true, backend == c.backend) {
					says := q.doctor()
					assert.That(t, strings.Contains(says, c.says), "doctor doesn't say %q: %s", c.says, says)
				}
				if d := os.Getenv("TORTURE"); d != "" { // make quirks
					q.runs(0, "torture", "--duration", d)
				}
			})
		}
	}
}

// TestIfMatchWithoutQuotes: if a URL says that If-Match takes no quotes, the condition is relied on as elsewhere, and
// there are fencing tokens.
func TestIfMatchWithoutQuotes(t *testing.T) {
	t.Parallel()
	quirks := proxy.Quirks{Unquoted: true}
	q := newQuirky(t, "s3", "&if-match=unquoted", quirks)
	says := q.doctor()
	assert.That(t, strings.Contains(says, "with conditions=kept in the URL"), "doctor: %s", says)
	q = newQuirky(t, "s3", "&if-match=unquoted&conditions=kept", quirks)
	for _, fence := range []string{"1", "2"} {
		q.runs(0, "prune", "--fence", "--", "sh", "-c", `test "$REPOLOCK_FENCE" = `+fence)
	}
	says = newQuirky(t, "s3", "&if-match=bare", quirks).runs(fault.ExitUsage, "status")
	assert.That(t, strings.Contains(says, "if-match= is quoted or unquoted"), "status: %s", says)
}

// TestFenceNeedsKept: a fence on a server whose URL doesn't say that it keeps conditions is refused, and the hint names
// the parameter. A server that has no conditions gets no such hint.
func TestFenceNeedsKept(t *testing.T) {
	t.Parallel()
	for _, backend := range []string{"s3", "minio"} {
		for query, remedy := range map[string]bool{"": true, "&conditions=auto": true, "&conditions=none": false} {
			says := newQuirky(t, backend, query, proxy.Quirks{}).runs(fault.ExitUnfit, "prune", "--fence", "--", "true")
			assert.That(t, strings.Contains(says, "no fencing token") &&
				strings.Contains(says, "add conditions=kept to the URL if repolock") == remedy, "%s %s: %s", backend, query, says)
		}
	}
}

// staleBody is the body of a shared lock whose holder crashed an hour ago.
func staleBody(i int) string {
	at := time.Now().Add(-time.Hour).UTC().Format(time.RFC3339Nano)
	return fmt.Sprintf(`{"operation": "backup", "holder": "m%d (pid 1)", "acquired_at": %q, "expires_at": %q, "is_shared": true, "id": "%032x", "ttl_seconds": 10, "refreshed_at": %q}`, i, at, at, i, at)
}

// TestManyStale: prune says that it removes hundreds of stale locks, and names the first of them.
func TestManyStale(t *testing.T) {
	t.Parallel()
	repo := t.TempDir()
	const n = 300
	for i := range n {
		name := filepath.Join(repo, "index", "lock.shared", fmt.Sprintf("%03d", i))
		write(t, name, staleBody(i))
		hourAgo := time.Now().Add(-time.Hour)
		assert.OK(t, os.Chtimes(name, hourAgo, hourAgo))
	}
	code, _, said := call("-r", repo, "prune", "--", "true")
	assert.That(t, code == 0 && strings.Count(said, "repolock: removing 300 stale locks\n") == 1 && strings.Count(said, "removed a stale lock: ") == show.MaxListed &&
		strings.Contains(said, "repolock: removed 290 more stale locks\n"),
		"exit code %d: %s", code, said)
	left := tree(t, filepath.Join(repo, "index"))
	assert.That(t, len(left) == 0, "left: %v", left)
}
