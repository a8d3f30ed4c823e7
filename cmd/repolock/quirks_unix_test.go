//go:build unix

package main

import (
	"bufio"
	"bytes"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/proxy"
)

// quirky is a server with some quirks, and a record of its bucket.
type quirky struct {
	*proxy.Proxy
	t       *testing.T
	repo    string
	renewed chan struct{} // a flag was put for the third time
}

func newQuirky(t *testing.T, backend, params string, quirks proxy.Quirks) *quirky {
	server := httptest.NewServer(fakes3.New("bucket"))
	t.Cleanup(server.Close)
	p, err := proxy.New(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(p.Close)
	q := &quirky{Proxy: p, t: t, renewed: make(chan struct{}, 1)}
	// A new signature is of the plain body: minio-go sends signed chunks.
	sign := &proxy.Credentials{User: "x", Password: "secret"}
	p.Behave(proxy.Behaviour{Quirks: quirks, Sign: sign, Decide: func(r proxy.Request) (none proxy.Fault) {
		if r.Op == "put" && strings.Contains(r.Key, "/lock.shared/") && r.N >= 3 {
			select {
			case q.renewed <- struct{}{}:
			default:
			}
		}
		return none
	}})
	q.repo = map[string]string{
		"s3": "s3://bucket/p?region=us-east-1&endpoint=" + p.URL(), "minio": "minio://" + p.Host() + "/bucket/p?tls=false",
	}[backend] + params
	return q
}

func (q *quirky) command(args ...string) *exec.Cmd {
	cmd := exec.Command("repolock", append([]string{"-r", q.repo}, args...)...)
	cmd.Env = append(os.Environ(), "AWS_ACCESS_KEY_ID=x", "AWS_SECRET_ACCESS_KEY=secret", "AWS_EC2_METADATA_DISABLED=true")
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

// backup holds a shared lock until end is called.
func (q *quirky) backup() (end func()) {
	q.t.Helper()
	cmd := q.command("backup", "--ttl", "10s", "--", "sh", "-c", "echo held; cat")
	in, err := cmd.StdinPipe()
	if err != nil {
		q.t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		q.t.Fatal(err)
	}
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := cmd.Start(); err != nil {
		q.t.Fatal(err)
	}
	if line, _ := bufio.NewReader(out).ReadString('\n'); line != "held\n" {
		_ = cmd.Wait()
		q.t.Fatalf("no lock: %s", said.String())
	}
	return func() {
		q.t.Helper()
		in.Close()
		_, _ = io.Copy(io.Discard, out)
		if code := exitOf(q.t, cmd.Wait()); code != 0 {
			q.t.Errorf("the backup: exit code %d: %s", code, said.String())
		}
	}
}

// TestQuirks: on real servers that aren't quite S3, locks are acquired, renewed, refused and
// waited for, exclusion holds, and doctor finds the servers fit.
func TestQuirks(t *testing.T) {
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
				end := q.backup()
				q.run(exitHeld, "prune", "--", "true")
				waiter := q.command("prune", "--wait", "1h", "--", "true")
				var said bytes.Buffer
				waiter.Stderr = &said
				if err := waiter.Start(); err != nil {
					t.Fatal(err)
				}
				<-q.renewed
				end()
				if code := exitOf(t, waiter.Wait()); code != 0 {
					t.Errorf("the waiter: exit code %d: %s", code, said.String())
				}
				if says := q.run(0, "doctor"); !strings.Contains(says, c.says) {
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
	quirks := proxy.Quirks{Unquoted: true}
	q := newQuirky(t, "s3", "&if-match=unquoted", quirks)
	if says := q.run(0, "doctor"); !strings.Contains(says, "with conditions=kept in the URL") {
		t.Errorf("doctor: %s", says)
	}
	q = newQuirky(t, "s3", "&if-match=unquoted&conditions=kept", quirks)
	for _, fence := range []string{"1", "2"} {
		q.run(0, "prune", "--fence", "--", "sh", "-c", `test "$REPOLOCK_FENCE" = `+fence)
	}
	end := q.backup()
	<-q.renewed
	end()
	q = newQuirky(t, "s3", "&if-match=quoted", proxy.Quirks{})
	q.run(0, "doctor")
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
