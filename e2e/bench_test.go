//go:build linux && minio && programs

package e2e

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	keys "github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// BenchmarkLocks measures what a lock costs, and prints tables in Markdown: see docs/evidence/benchmarks.md. With
// -short it only checks that it works.
func BenchmarkLocks(b *testing.B) {
	m := &bench{work: b.TempDir(), start: time.Now()}
	m.repolock = filepath.Join(m.work, "repolock")
	versions := in(b, ".", `go list -C minio -m github.com/minio/minio; restic version; flock --version | head -n 1
go list -m github.com/aws/aws-sdk-go-v2/service/s3 github.com/minio/minio-go/v7`)
	build(b, m.repolock, "go build -trimpath")
	m.cert, m.key = certificate(b) // one, because a process reads SSL_CERT_FILE once
	for _, section := range []struct {
		name string
		run  func(*bench)
	}{
		{"commands", (*bench).heldCommands}, {"held", (*bench).heldLocks},
		{"latencies", (*bench).latencies}, {"among", (*bench).amongOthers}, {"refreshing", (*bench).refreshing},
	} {
		b.Run(section.name, func(b *testing.B) { m.B = b; section.run(m) })
	}
	if b.Failed() {
		return
	}
	printTables(versions, m.report.String())
}

// bench is one run of BenchmarkLocks.
type bench struct {
	*testing.B        // of the section
	work       string // a temporary directory
	repolock   string // the command, built there as users build it
	cert, key  string // of the proxies
	start      time.Time
	report     strings.Builder // is printed if no section fails
}

// say prints the progress to stderr.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %3.0f s: %s\n", time.Since(b.start).Seconds(), fmt.Sprintf(format, args...))
}

// table adds a table to the report, and note a line.
func (b *bench) table(title string, rows []row) { b.report.WriteString(markdown(title, rows)) }

func (b *bench) note(format string, args ...any) { fmt.Fprintf(&b.report, "\n- "+format+"\n", args...) }

// proxied starts a proxy with TLS in front of a server.
func (b *bench) proxied(s server) *proxy.Proxy { return secured(b, s, b.cert, b.key) }

// acquirer acquires one lock.
type acquirer func(context.Context) (held, error)

type held interface{ Release(context.Context) error }

// engine is the engine in a new process, which knows nothing of the store yet.
func engine(b *testing.B, s store.Store, mode replock.Mode) acquirer {
	b.Helper()
	l, err := replock.New(s, replock.Options{Beside: replock.BesideNobody})
	assert.OK(b, err)
	return func(ctx context.Context) (held, error) {
		if mode == replock.Exclusive {
			return l.TryExclusive(ctx, "bench")
		}
		return l.TryShared(ctx, "bench")
	}
}

// original is the original protocol.
func original(_ *testing.B, s store.Store, mode replock.Mode) acquirer {
	l := &cloudsticlock.Locker{Store: s, Clock: clock.System{}, Holder: "bench (pid 1)"}
	return func(ctx context.Context) (held, error) {
		if mode == replock.Exclusive {
			return l.Exclusive(ctx, "bench")
		}
		return l.Shared(ctx, "bench")
	}
}

// unlocked is a conditional put and a deletion, by MinIO's client alone: without a listing, a lease or a look.
type unlocked struct {
	*minio.Client
	bucket string
}

func (u unlocked) acquire(ctx context.Context) (held, error) {
	var opts minio.PutObjectOptions
	opts.SetMatchETagExcept("*")
	body := make([]byte, 600)
	return u, assert.Err(u.PutObject(ctx, u.bucket, "bare", bytes.NewReader(body), int64(len(body)), opts))
}

func (u unlocked) Release(ctx context.Context) error {
	return u.RemoveObject(ctx, u.bucket, "bare", minio.RemoveObjectOptions{})
}

// warm opens a store, and makes it sign in and connect.
func warm(b *testing.B, url string) store.Store {
	b.Helper()
	s := openStore(b, url)
	assert.OK(b, assert.Err(s.List(b.Context(), "warm-up", "")))
	return s
}

// lock measures one acquire and release. The acquire includes open. A lock that must be refused isn't released.
func (r row) lock(b *testing.B, p *proxy.Proxy, open func() acquirer, refused bool) {
	b.Helper()
	passed(p)
	start := time.Now()
	k, err := open()(b.Context())
	took := time.Since(start)
	if (err != nil) != refused || refused && !errors.Is(err, replock.ErrHeld) {
		b.Fatalf("%s: %v", r.name, err)
	}
	acquire := passed(p)
	if refused {
		r.took("ms", took)
		r.requests("", acquire)
		return
	}
	start = time.Now()
	assert.OK(b, k.Release(b.Context()))
	r.lasted(took, time.Since(start), acquire, passed(p))
}

// always returns the same.
func always(a acquirer) func() acquirer { return func() acquirer { return a } }

// lasted adds the times and the requests of an acquire and of its release.
func (r row) lasted(took, released time.Duration, acquire, release proxy.Log) {
	r.took("ms", took)
	r.took("release ms", released)
	r.took("both ms", took+released)
	r.requests("", acquire)
	r.requests("release ", release)
}

func (r row) requests(of string, l proxy.Log) {
	r.add(of+"round trips", float64(l.Trips()))
	r.add(of+"requests", float64(len(l)))
}

// latencies measures acquire and release on MinIO. The proxy adds nothing each way, or the latency of a store in
// the same country. In the first table each library has had a lock before, on its own connection, and in the
// second one it is new. repolock run opens a connection for its lock, and restic has one open.
func (b *bench) latencies() {
	at := onS3.on(onS3.shared(b))
	p := b.proxied(at)
	assert.Output(b, restic(at, p, "init").command())
	for _, c := range []struct {
		added time.Duration
		times int
	}{{0, 60}, {20 * time.Millisecond, 20}} {
		p.Behave(proxy.Behaviour{Latency: c.added})
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			name := fmt.Sprintf("%s lock on MinIO over TLS, %d ms added each way", mode, c.added.Milliseconds())
			b.say("%s", name)
			open, anew := b.libraries(at, p, mode)
			times := rounds.Fewer(c.times, 2)
			connected, fresh := inTurns(times, open...), inTurns(times, anew...)
			programs := inTurns(rounds.Fewer(9, 2), b.programs(at, p, mode)...)
			b.table(name+", on an open connection", append(connected, programs[0]))
			b.table(name+", with a new connection", append(fresh, programs[1:]...))
		}
	}
}

// libraries are the locks of libraries, on an open connection and with a new one. An exclusive lock of ours costs less
// if the store is known to keep conditions, which a client finds out with its first lock.
func (b *bench) libraries(at place, p *proxy.Proxy, mode replock.Mode) (open, anew []subject) {
	s3 := at.securely(p)
	add := func(name string, connect func() acquirer) {
		acquire := connect()
		k, err := acquire(b.Context())
		assert.OK(b, err)
		assert.OK(b, k.Release(b.Context()))
		open = append(open, subject{name, func(r row) { r.lock(b.B, p, always(acquire), false) }})
		anew = append(anew, subject{name, func(r row) { r.lock(b.B, p, connect, false) }})
	}
	for _, c := range []struct {
		name, url string
		lock      func(*testing.B, store.Store, replock.Mode) acquirer
	}{
		{"repolock, s3", s3, engine},
		{"repolock, minio", place{onMinIO, at.server, at.bucket}.securely(p), engine},
		{"repolock, s3, conditions=kept", s3 + "&conditions=kept", engine},
		{"original protocol, s3", s3, original},
	} {
		if mode == replock.Exclusive || !strings.HasSuffix(c.url, "kept") { // a shared one is the same as without
			add(c.name, func() acquirer { return c.lock(b.B, openStore(b, c.url), mode) })
		}
	}
	add("a conditional put and a deletion", func() acquirer {
		c, err := minio.New(p.Host(), &minio.Options{Creds: keys.NewStaticV4(miniotest.User, miniotest.Password, ""), Secure: true, Region: "us-east-1"})
		assert.OK(b, err)
		return unlocked{c, at.bucket}.acquire
	})
	return open, anew
}

// programs are commands that take a lock and do next to nothing: first restic, whose requests for its locks count, the
// same with the opening of another connection, and repolock run, less the same without its lock.
func (b *bench) programs(at place, p *proxy.Proxy, mode replock.Mode) []subject {
	does := map[replock.Mode]string{replock.Shared: "restic cat config", replock.Exclusive: "restic check"}[mode] + ", its requests on locks/"
	args := map[replock.Mode][]string{replock.Shared: {"cat", "config"}, replock.Exclusive: {"check"}}[mode]
	var acquire, release proxy.Log // of the last run
	all := []subject{
		{does, func(r row) {
			passed(p)
			assert.Output(b, restic(at, p, args...).command())
			log := passed(p)
			if acquire, release = lockPart(log, "restic/locks/"); len(acquire) == 0 || len(release) == 0 {
				b.Fatalf("%v took no lock:\n%v", args, log)
			}
			r.lasted(lasted(acquire), lasted(release), acquire, release)
		}},
		{does + ", and a connection", func(r row) { r.lasted(connecting(b.B, p)+lasted(acquire), lasted(release), acquire, release) }},
	}
	other := onS3.on(at.server)
	for _, params := range []string{"", "&conditions=kept"} {
		if mode == replock.Shared && params != "" {
			continue // the same as without
		}
		run := func(lock string) (time.Duration, proxy.Log) {
			passed(p)
			start := time.Now()
			assert.Output(b, exec.Command(b.repolock, "run", "--quiet", lock, "--repo", other.securely(p)+params, "--", "true"))
			return time.Since(start), passed(p)
		}
		all = append(all, subject{fmt.Sprintf("repolock run --%s -- true, s3%s, less --no-lock", mode, strings.Replace(params, "&", ", ", 1)), func(r row) {
			locked, with := run("--" + mode.String())
			bare, without := run("--no-lock")
			r.took("both ms", locked-bare)
			r.add("round trips", float64(with.Trips()-without.Trips()))
			r.add("requests", float64(len(with)-len(without)))
		}})
	}
	return all
}

func restic(at place, p *proxy.Proxy, args ...string) commandLine {
	return commandLine{args: append([]string{"restic", "--quiet", "--no-cache"}, args...), env: []string{
		"RESTIC_REPOSITORY=s3:https://" + p.Host() + "/" + at.bucket + "/restic", "RESTIC_PASSWORD=bench", "AWS_DEFAULT_REGION=us-east-1",
	}}
}

// lockPart returns the requests of a command for its locks until it deletes its own, and from
// then on.
func lockPart(l proxy.Log, locks string) (acquire, release proxy.Log) {
	for _, e := range l {
		switch {
		case !strings.HasPrefix(e.Key, locks):
		case e.Op == "delete" || len(release) > 0:
			release = append(release, e)
		default:
			acquire = append(acquire, e)
		}
	}
	return acquire, release
}

// lasted returns the time from the beginning of the first request to the end of the last one.
func lasted(l proxy.Log) time.Duration {
	first := slices.MinFunc(l, func(a, b proxy.Entry) int { return a.Start.Compare(b.Start) })
	last := slices.MaxFunc(l, func(a, b proxy.Entry) int { return a.End.Compare(b.End) })
	return last.End.Sub(first.Start)
}

// connecting returns the time in which TCP and TLS open a connection.
func connecting(b *testing.B, p *proxy.Proxy) time.Duration {
	b.Helper()
	config := http.DefaultTransport.(*http.Transport).TLSClientConfig.Clone() // of certificate
	start := time.Now()
	c, err := tls.Dial("tcp", p.Host(), config)
	took := time.Since(start)
	assert.OK(b, err)
	assert.OK(b, c.Close())
	return took
}

// settling is the age from which a flag no longer counts as one of an acquirer that is about to withdraw.
const settling = 4 * time.Second

// amongOthers measures acquires beside shared locks of others: of live holders, and of crashed ones.
func (b *bench) amongOthers() {
	var shared, exclusive []row
	few := rounds.Fewer(20, 3)
	numbers := []int{0, 100, rounds.Fewer(10_000, 1000)}
	for i, n := range numbers {
		b.say("%d shared locks on MinIO", n)
		at := onS3.on(onS3.shared(b))
		p := b.proxied(at)
		s := warm(b.B, at.securely(p)+"&conditions=kept")
		acquire := func(rows *[]row, mode replock.Mode, times int, refused bool, name string) {
			*rows = append(*rows, inTurns(times, subject{name, func(r row) { r.lock(b.B, p, always(engine(b.B, s, mode)), refused) }})...)
		}
		flags(b.B, warm(b.B, at.repo()), n)
		expire := time.Now().Add(replock.DefaultTTL)
		time.Sleep(settling)
		outcome := ", refused"
		if n == 0 {
			outcome = ""
		}
		acquire(&shared, replock.Shared, few, false, fmt.Sprint(n, " live"))
		acquire(&exclusive, replock.Exclusive, few, n > 0, fmt.Sprint(n, " live", outcome))
		if i < len(numbers)-1 {
			continue
		}
		b.say("waiting for the %d to expire", n)
		time.Sleep(time.Until(expire.Add(4 * time.Second))) // the engine's slack for the store's clock, twice
		acquire(&shared, replock.Shared, few, false, fmt.Sprint(n, " stale"))
		acquire(&exclusive, replock.Exclusive, 1, false, fmt.Sprint(n, " stale, removed")) // the first one removes them
		assert.Equal(b, len(at.left()), 0, "stale locks that weren't removed, of %d", n)
	}
	b.table("shared lock on MinIO over TLS, on an open connection, among others' shared locks", shared)
	b.table("exclusive lock on MinIO over TLS, on an open connection, among others' shared locks", exclusive)
}
