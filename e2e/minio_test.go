//go:build unix && minio

package e2e

import (
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
)

// TestOnStores runs the scenarios on every store. A scenario that stops its server has one of
// its own.
func TestOnStores(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, c := range scenarios {
			t.Run(c.name, func(t *testing.T) {
				t.Parallel()
				start := k.shared
				if c.outage {
					rounds.Long(t, "an outage lasts for a ttl, on a server of its own")
					start = k.own
				}
				c.run(k.on(start(t)).site(t))
			})
		}
	})
}

// TestPartition: the holder is cut off, and another client, which isn't, gets in. The first
// command never runs at the same time, and never again.
func TestPartition(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for name, how := range map[string]struct{ cut, join func(*proxy.Proxy) error }{
			"refused": {
				func(p *proxy.Proxy) error { p.Stop(); return nil },
				(*proxy.Proxy).Start,
			},
			"hanging": {
				func(p *proxy.Proxy) error { p.Behave(proxy.Behaviour{Blackhole: true}); return nil },
				func(p *proxy.Proxy) error { p.Behave(proxy.Behaviour{}); return nil },
			},
		} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				p := proxied(t, at, proxy.Behaviour{})
				partition(at.site(t), at.through(p), func() error { return how.cut(p) }, func() error { return how.join(p) })
			})
		}
	})
}

func partition(s *site, through string, cut, join func() error) {
	a := s.at(through).hold("backup", "a", brief...)
	must := func(err error) {
		if err != nil {
			s.t.Fatal(err)
		}
	}
	must(cut())
	s.another()
	must(join())
	s.lostTo(a)
}

// TestMixed: a client through one driver and one through the other, on the same
// bucket, exclude each other both ways round.
func TestMixed(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		first, second kind
	}{{onS3, onMinIO}, {onMinIO, onS3}} {
		for _, op := range []struct{ first, second string }{
			{"backup", "prune"}, {"prune", "backup"}, {"prune", "prune"},
		} {
			t.Run(fmt.Sprintf("%s of %s, %s of %s", op.first, c.first.name, op.second, c.second.name), func(t *testing.T) {
				t.Parallel()
				at := c.first.on(c.first.shared(t))
				s := at.site(t)
				other := s.at(c.second.url(at.host(), at.bucket))
				p := s.hold(op.first, "a")
				refused(other, op.second, p)
				if op.first == "backup" {
					other.hold("backup", "b").end("b")
				}
				p.end("a")
				other.hold(op.second, "c").end("c")
				s.nothingLeft()
			})
		}
	}
}

// TestClocks: times in answers that are an hour wrong, in either direction or in both at once,
// don't change which client gets in and when. The store's clock is only compared with itself,
// and agrees with the other witness. If the wall clocks of two machines disagreed, a stale
// lock would be watched for one ttl more.
func TestClocks(t *testing.T) {
	onEach(t, func(t *testing.T, k kind) {
		for _, c := range []struct{ holder, other time.Duration }{
			{0, 0}, {time.Hour, time.Hour}, {-time.Hour, -time.Hour}, {time.Hour, -time.Hour}, {-time.Hour, time.Hour},
		} {
			t.Run(fmt.Sprintf("%+v and %+v", c.holder, c.other), func(t *testing.T) {
				t.Parallel()
				at := k.on(k.shared(t))
				// The proxy lets the clients sign with the clock that they see.
				a := proxied(t, at, proxy.Behaviour{Shift: c.holder, Sign: root})
				b := proxied(t, at, proxy.Behaviour{Shift: c.other, Sign: root})
				clocks(at.site(t), at.through(a), at.through(b))
			})
		}
	})
}

// clocks: a holder isn't passed while it lives, and is passed soon after its end. The lease is
// long enough to be refreshed on a busy machine.
func clocks(s *site, holder, through string) {
	const lease = 30 * time.Second
	p := s.at(holder).hold("backup", "a", "--ttl", lease.String())
	other := s.at(through)
	for end := time.Now().Add(lease + 5*time.Second); time.Now().Before(end); time.Sleep(2 * time.Second) {
		refused(other, "prune", p)
	}
	p.signal(syscall.SIGKILL)
	killed := time.Now()
	<-p.done
	end := s.leased()
	in := other.freed(killed.Add(lease + 5*time.Second))
	s.t.Logf("free again after %v", in.Sub(killed).Round(100*time.Millisecond))
	if in.Before(end) {
		s.t.Errorf("free again %v before the lease was over", end.Sub(in))
	}
	s.nothingLeft()
}

// TestFiftyWaiters: fifty waiters behind a backup, 20 of them for the exclusive lock, all get
// in, in the order in which they came: the exclusive ones first, and each of them alone.
// Nothing is left.
func TestFiftyWaiters(t *testing.T) {
	const exclusive, shared = 20, 30
	s := onMinIO.on(onMinIO.shared(t)).site(t)
	first := s.hold("backup", "first")
	var waiters []*process
	wait := func(operation, mode string) {
		waiters = append(waiters, s.start(operation, "--wait", "forever", "--", "sh", "-c",
			fmt.Sprintf("echo in %s $$ >>log; sleep 0.1; echo out %s $$ >>log", mode, mode)))
	}
	l, err := replock.New(openStore(t, s.repo), replock.Options{})
	if err != nil {
		t.Fatal(err)
	}
	tickets := func(n int) bool {
		locks, err := l.Status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return len(slices.DeleteFunc(locks, func(i replock.Info) bool { return i.State != replock.StateWaiting })) == n
	}
	for range exclusive {
		wait("prune", "exclusive")
	}
	s.until("the exclusive ones' tickets", hang, func() bool { return tickets(exclusive) })
	for range shared {
		wait("backup", "shared")
	}
	s.until("all tickets", hang, func() bool { return tickets(exclusive + shared) })
	time.Sleep(2 * time.Second) // it must stay so
	if !tickets(exclusive+shared) || s.exists("log") {
		t.Errorf("a holder is in: %q", s.left())
	}
	start := time.Now()
	first.end("first")
	for _, w := range waiters {
		if code := w.code(); code != 0 {
			t.Errorf("exit code %d:\n%s", code, w.stderr.String())
		}
	}
	t.Logf("all were in after %v", time.Since(start).Round(time.Second))

	raw, err := os.ReadFile(s.path("log"))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(raw)), "\n")
	in := map[string]int{}
	var order []string
	for _, line := range lines {
		f := strings.Fields(line)
		switch f[0] {
		case "in":
			if in["exclusive"] > 0 || f[1] == "exclusive" && in["shared"] > 0 {
				t.Errorf("%s beside %v", line, in)
			}
			in[f[1]]++
			order = append(order, f[1])
		case "out":
			in[f[1]]--
		}
	}
	if len(order) != exclusive+shared || !slices.IsSorted(order) { // "exclusive" < "shared"
		t.Errorf("they got in in the order %v", order)
	}
	s.nothingLeft()
}

// TestBrokenLockStaysBroken: a holder whose lock was broken stops its command at its next
// refresh, and doesn't put the lock back, whatever it has learnt of the server until then. On
// MinIO before September 2025 If-Match alone doesn't prevent that.
func TestBrokenLockStaysBroken(t *testing.T) {
	t.Parallel()
	for _, k := range []kind{onS3, onMinIO} {
		for _, operation := range []string{"backup", "prune"} {
			t.Run(k.name+", "+operation, func(t *testing.T) {
				t.Parallel()
				for try := 1; !staysBroken(t, k.on(k.shared(t)), operation); try++ {
					if try == 10 {
						t.Fatal("there was always a refresh under way")
					}
				}
			})
		}
	}
}

// staysBroken breaks a lock that is held, and lets a prune acquire it, before the next request of the
// holder arrives. It returns false if a refresh was under way by then: it can put the lock back if
// If-Match can't be relied on.
func staysBroken(t *testing.T, at place, operation string) bool {
	s := at.site(t)
	var gate gate
	p := proxied(t, at, proxy.Behaviour{Decide: gate.decide})
	t.Cleanup(func() { gate.open() })
	holder := s.at(at.through(p)).hold(operation, "a", append(brief, "--verbose")...)
	holder.reaches("two refreshes", func() bool { return strings.Count(holder.stderr.String(), "repolock: refreshed: ") >= 2 })
	gate.shut()
	holder.reaches("its next request", func() bool { return len(gate.stopped()) > 0 })
	own := map[string]bool{}
	for _, r := range p.Take() {
		own[r.Key] = own[r.Key] || r.Op == "put"
	}
	if code := s.start("break-lock", "--yes").code(); code != 0 {
		t.Fatalf("break-lock has exit code %d", code)
	}
	// The prune gets in at once. It writes when the holder has had time to.
	pruner := s.start(append([]string{"prune", "--ttl", lasting.String(), "--", "sh", "-c",
		"touch in; while [ ! -e go ]; do sleep 0.1; done; exec \"$@\"", "sh"}, ticks("b")[1:]...)...)
	pruner.reaches("the prune to get in", func() bool { return s.exists("in") })
	underWay := slices.Contains(gate.open(), "put") // a refresh begins with a look
	var back []string
	s.until("the holder to end, or to refresh what was broken", hang, func() bool {
		for _, r := range p.Take() {
			if r.Op == "put" && r.Status == http.StatusOK && own[r.Key] {
				back = append(back, r.Key)
			}
		}
		return holder.ended() || len(back) > 0
	})
	s.touch("go")
	pruner.reaches("the prune to write", func() bool { return len(s.times("b")) > 3 })
	s.touch("stop-a") // otherwise it might run for ever
	code := holder.code()
	pruner.end("b")
	if underWay {
		return false
	}
	if len(back) > 0 {
		t.Errorf("the lock was put back: %q", back)
	}
	if code != 79 {
		t.Errorf("the %s has exit code %d, want 79", operation, code)
	}
	if last, first := s.last("a"), s.times("b")[0]; !last.Before(first) {
		t.Errorf("the %s wrote for %v beside the prune", operation, last.Sub(first))
	}
	s.nothingLeft()
	return true
}

// gate stops all requests while it is shut.
type gate struct {
	mu  sync.Mutex
	way chan struct{} // closed when it opens; nil before it was shut
	ops []string      // that it has stopped
}

func (g *gate) decide(r proxy.Request) proxy.Fault {
	g.mu.Lock()
	way := g.way
	if way != nil {
		g.ops = append(g.ops, r.Op)
	}
	g.mu.Unlock()
	if way != nil {
		<-way
	}
	return proxy.Fault{}
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.way = make(chan struct{})
}

func (g *gate) stopped() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	return slices.Clone(g.ops)
}

func (g *gate) open() (ops []string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.way != nil {
		close(g.way)
	}
	ops, g.way = g.ops, nil
	return ops
}

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
