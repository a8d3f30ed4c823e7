//go:build unix

package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/proxy"
)

// quirky is a server with some quirks, and a record of its bucket.
type quirky struct {
	*proxy.Proxy
	t       *testing.T
	repo    string
	runtime string // the directory of the keepers' sockets
}

func newQuirky(t *testing.T, backend, params string, quirks proxy.Quirks) *quirky {
	return newQuirkyOn(t, httptest.NewServer(fakes3.New("bucket")), backend, params, quirks)
}

func newQuirkyOn(t *testing.T, server *httptest.Server, backend, params string, quirks proxy.Quirks) *quirky {
	t.Cleanup(server.Close)
	p, err := proxy.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	runtime, err := os.MkdirTemp("/tmp", "run") // TMPDIR can be too long for sockets
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(runtime) })
	q := &quirky{Proxy: p, t: t, runtime: runtime}
	// A new signature is of the plain body: minio-go sends signed chunks.
	p.Behave(proxy.Behaviour{Quirks: quirks, Sign: &proxy.Credentials{User: "x", Password: "secret"}})
	q.repo = map[string]string{
		"s3": "s3://bucket/p?region=us-east-1&endpoint=" + p.URL(), "minio": "minio://" + p.Host() + "/bucket/p?tls=false",
	}[backend] + params
	return q
}

func (q *quirky) command(args ...string) *exec.Cmd {
	cmd := exec.Command("repolock", append([]string{"-r", q.repo}, args...)...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true",
		"XDG_RUNTIME_DIR="+q.runtime)
	return cmd
}

// run runs repolock, which must exit with this code, and returns its output.
func (q *quirky) run(want int, args ...string) string {
	q.t.Helper()
	out, err := q.command(args...).CombinedOutput()
	if code := exitOf(q.t, err); code != want {
		q.t.Errorf("%q: exit code %d, want %d: %s", args, code, want, out)
	}
	return string(out)
}

// acquire acquires a shared lock that lasts longer than the test, and returns its token. It
// is renewed only if renew is called, so that no row depends on speed.
func (q *quirky) acquire() (token string) {
	q.t.Helper()
	cmd := q.command("acquire", "--shared", "--ttl", "1h", "--for-pid", fmt.Sprint(os.Getpid()))
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if code := exitOf(q.t, err); code != 0 {
		q.t.Fatalf("acquire: exit code %d: %s", code, said.String())
	}
	token = strings.TrimSpace(string(out))
	q.t.Cleanup(func() { _ = q.command("release", token).Run() }) // a test that failed must leave no keeper
	return token
}

// prune starts a waiter, and returns when it waits. end waits until it has had the lock.
func (q *quirky) prune() (end func()) {
	q.t.Helper()
	cmd := q.command("prune", "--wait", "1h", "--", "true")
	stderr, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		q.t.Fatal(err)
	}
	said := ""
	for in := bufio.NewReader(stderr); ; {
		line, err := in.ReadString('\n')
		said += line
		if err != nil {
			_ = cmd.Wait()
			q.t.Fatalf("it doesn't wait: %s", said)
		}
		if strings.Contains(line, "waiting for the exclusive lock") {
			return func() {
				q.t.Helper()
				rest, _ := io.ReadAll(in)
				if code := exitOf(q.t, cmd.Wait()); code != 0 {
					q.t.Errorf("the waiter: exit code %d: %s%s", code, said, rest)
				}
			}
		}
	}
}

// oneDoctor lets the doctors run one by one: each sends its requests as fast as it can, and
// all together could make one another wait for longer than a doctor waits for an answer.
var oneDoctor sync.Mutex

// doctor returns what doctor says, which must find the server fit. If a starved machine answers
// a request only after the 10 s for which doctor waits, doctor says so, and is run again.
func (q *quirky) doctor() (says string) {
	q.t.Helper()
	oneDoctor.Lock()
	defer oneDoctor.Unlock()
	until(q.t, "doctor is answered in time", func() bool {
		out, err := q.command("doctor").CombinedOutput()
		says = string(out)
		code := exitOf(q.t, err)
		if code != 0 && strings.Contains(says, "no answer within 10s") {
			q.t.Logf("doctor: %s", out)
			return false
		}
		if code != 0 {
			q.t.Errorf("doctor: exit code %d: %s", code, out)
		}
		return true
	})
	return says
}

// TestQuirks: on real servers that aren't quite S3, locks are acquired, renewed, refused and
// waited for, exclusion holds, and doctor finds the servers fit.
func TestQuirks(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		quirks proxy.Quirks
		says   string // doctor
	}{
		"none":                                 {proxy.Quirks{}, "conditional puts passed every test"},
		"a key is listed twice":                {proxy.Quirks{Twice: true}, "conditional puts passed every test"},
		"a page in no order now and then":      {proxy.Quirks{Disordered: true}, "conditional puts passed every test"},
		"an empty answer is called a web page": {proxy.Quirks{Web: true}, "conditional puts passed every test"},
		"a put is accepted now and then":       {proxy.Quirks{Web: true, Accepted: true}, "fit"},
		"a delete marker counts as an object":  {proxy.Quirks{Markers: true}, "a delete marker"},
		"If-Match is taken without quotes":     {proxy.Quirks{Unquoted: true}, "if-match=unquoted"},
	} {
		for _, backend := range []string{"s3", "minio"} {
			t.Run(name+"/"+backend, func(t *testing.T) {
				t.Parallel()
				q := newQuirky(t, backend, "", c.quirks)
				q.run(0, "prune", "--", "true")
				q.run(0, "prune", "--", "true")
				token := q.acquire()
				q.run(exitHeld, "prune", "--", "true")
				end := q.prune()
				for range 2 {
					if !c.quirks.Accepted || q.command("renew", token).Run() != nil { // a put was answered 202
						q.run(0, "renew", token)
					}
				}
				q.run(0, "release", token)
				end()
				if says := q.doctor(); !strings.Contains(says, c.says) {
					t.Errorf("doctor doesn't say %q: %s", c.says, says)
				}
				if d := os.Getenv("TORTURE"); d != "" { // make quirks
					q.run(0, "torture", "--duration", d)
				}
			})
		}
	}
}

// TestIfMatchWithoutQuotes: if a URL says that If-Match takes no quotes, the condition is
// relied on as elsewhere: one put renews a lock, and there are fencing numbers.
func TestIfMatchWithoutQuotes(t *testing.T) {
	t.Parallel()
	quirks := proxy.Quirks{Unquoted: true}
	q := newQuirky(t, "s3", "&if-match=unquoted", quirks)
	if says := q.doctor(); !strings.Contains(says, "with conditions=kept in the URL") {
		t.Errorf("doctor: %s", says)
	}
	q = newQuirky(t, "s3", "&if-match=unquoted&conditions=kept", quirks)
	for _, fence := range []string{"1", "2"} {
		q.run(0, "prune", "--fence", "--", "sh", "-c", `test "$REPOLOCK_FENCE" = `+fence)
	}
	token := q.acquire()
	q.run(0, "renew", token)
	q.run(0, "release", token)
	q = newQuirky(t, "s3", "&if-match=quoted", proxy.Quirks{})
	q.doctor()
	q = newQuirky(t, "s3", "&if-match=bare", quirks)
	if says := q.run(exitUsage, "status"); !strings.Contains(says, "if-match= is quoted or unquoted") {
		t.Errorf("status: %s", says)
	}
}

// TestUnfitServer: the exit code for a server that can't hold locks differs from that for a
// held lock, because a scheduler can skip a held lock for ever.
func TestUnfitServer(t *testing.T) {
	for _, backend := range []string{"s3", "minio"} {
		t.Run(backend, func(t *testing.T) {
			t.Parallel()
			q := newQuirky(t, backend, "", proxy.Quirks{NoETags: true})
			for range 2 {
				q.run(exitUnfit, "prune", "--if-held", "skip", "--", "true")
			}
		})
	}
}
