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
	"runtime"
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

// BenchmarkLocks measures what a lock costs, and prints one table in Markdown: see docs/evidence/benchmarks.md. With
// -short it only checks that it works.
func BenchmarkLocks(b *testing.B) {
	m := &bench{work: b.TempDir(), start: time.Now()}
	m.repolock = filepath.Join(m.work, "repolock")
	versions := in(b, ".", `go list -C minio -m github.com/minio/minio; restic version; flock --version | head -n 1
go list -m github.com/aws/aws-sdk-go-v2/service/s3 github.com/minio/minio-go/v7`)
	in(b, "..", "go build -trimpath -o "+m.repolock+" ./cmd/repolock")
	m.cert, m.key = certificate(b) // one, because a process reads SSL_CERT_FILE once
	for _, section := range []struct {
		name string
		run  func(*bench)
	}{
		{"hand-over", (*bench).handOver}, {"commands", (*bench).heldCommands}, {"held", (*bench).heldLocks},
		{"latencies", (*bench).latencies}, {"among", (*bench).amongOthers}, {"refreshing", (*bench).refreshing},
	} {
		b.Run(section.name, func(b *testing.B) { m.B = b; section.run(m) })
	}
	if b.Failed() {
		return
	}
	programs := strings.ReplaceAll(strings.TrimSpace(versions), "\n", "; ")
	fmt.Printf("\n%s/%s, %d CPUs; %s; %s.\n\n%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), programs, m.table.separate(costs))
	for _, note := range m.notes {
		fmt.Printf("\n- %s\n", note)
	}
}

// acquirer acquires one lock.
type acquirer func(context.Context) (held, error)

type held interface{ Release(context.Context) error }

// engine is the engine in a new process, which knows nothing of the store yet.
func engine(b *testing.B, s store.Store, mode replock.Mode) acquirer {
	b.Helper()
	l, err := replock.New(s, replock.Options{})
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

// measure adds one acquire and release to a row. open is part of the acquire. A lock that must be refused isn't
// released.
func (r *row) measure(b *testing.B, p *proxy.Proxy, open func() acquirer, refused bool) {
	b.Helper()
	passed(p)
	start := time.Now()
	k, err := open()(b.Context())
	took := time.Since(start)
	if (err != nil) != refused || refused && !errors.Is(err, replock.ErrHeld) {
		b.Fatalf("%s: %v", r.name, err)
	}
	r.n++
	r.count(0, passed(p))
	if refused {
		r.took = append(r.took, took)
		return
	}
	start = time.Now()
	assert.OK(b, k.Release(b.Context()))
	r.lasted(took, time.Since(start))
	r.count(1, passed(p))
}

// always returns the same.
func always(a acquirer) func() acquirer { return func() acquirer { return a } }

// lasted notes the times of an acquire and of its release.
func (r *row) lasted(took, released time.Duration) {
	r.took, r.released, r.both = append(r.took, took), append(r.released, released), append(r.both, took+released)
}

// count notes the requests of an acquire, 0, or a release, 1.
func (r *row) count(which int, l proxy.Log) {
	r.trips[which] = append(r.trips[which], l.Trips())
	r.requests[which] = append(r.requests[which], len(l))
}

// latencies measures acquire and release on MinIO. The proxy adds nothing each way, or the latency of a store in
// the same country.
func (b *bench) latencies() {
	at := onS3.on(onS3.shared(b))
	p := b.proxied(at)
	(&command{env: resticEnv(at, p)}).timed(b.B, restic("init"))
	for _, c := range []struct {
		added time.Duration
		times int
	}{{0, 60}, {20 * time.Millisecond, 20}} {
		p.Behave(proxy.Behaviour{Latency: c.added})
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			name := fmt.Sprintf("%s lock on MinIO over TLS, %d ms added each way", mode, c.added.Milliseconds())
			b.say("%s", name)
			open, anew := group{name: name + ", on an open connection"}, group{name: name + ", with a new connection"}
			b.libraries(at, p, mode, rounds.Fewer(c.times, 2), &open, &anew)
			b.programs(at, p, mode, &open, &anew)
			b.table = append(b.table, open, anew)
		}
	}
}

// proxied starts a proxy with TLS in front of a server.
func (b *bench) proxied(s server) *proxy.Proxy { return secured(b, s, b.cert, b.key) }

// subjects are the locks of libraries. An exclusive lock of ours costs less if the store is known to keep
// conditions, which a client finds out with its first lock.
func (b *bench) subjects(at place, p *proxy.Proxy, mode replock.Mode) (names []string, open []func() acquirer) {
	s3 := at.securely(p)
	for _, c := range []struct {
		name, url string
		lock      func(*testing.B, store.Store, replock.Mode) acquirer
	}{
		{"repolock, s3", s3, engine},
		{"repolock, minio", place{onMinIO, at.server, at.bucket}.securely(p), engine},
		{"repolock, s3, conditions=kept", s3 + "&conditions=kept", engine},
		{"original protocol, s3", s3, original},
	} {
		if mode == replock.Shared && strings.HasSuffix(c.url, "kept") {
			continue // the same as without
		}
		names = append(names, c.name)
		open = append(open, func() acquirer { return c.lock(b.B, openStore(b, c.url), mode) })
	}
	return append(names, "a conditional put and a deletion"), append(open, func() acquirer {
		c, err := minio.New(p.Host(), &minio.Options{Creds: keys.NewStaticV4(miniotest.User, miniotest.Password, ""), Secure: true, Region: "us-east-1"})
		assert.OK(b, err)
		return unlocked{c, at.bucket}.acquire
	})
}

// libraries measures libraries in turn, so that other load on the machine affects all of them. First each has
// had a lock before, on its own connection. Then each is new, too.
func (b *bench) libraries(at place, p *proxy.Proxy, mode replock.Mode, times int, connected, anew *group) {
	names, open := b.subjects(at, p, mode)
	var again []func() acquirer
	for i, name := range names {
		acquire := open[i]()
		k, err := acquire(b.Context())
		assert.OK(b, err)
		assert.OK(b, k.Release(b.Context()))
		again = append(again, always(acquire))
		connected.rows, anew.rows = append(connected.rows, row{name: name}), append(anew.rows, row{name: name})
	}
	for range times {
		for i := range names {
			connected.rows[i].measure(b.B, p, again[i], false)
		}
	}
	for range times {
		for i := range names {
			anew.rows[i].measure(b.B, p, open[i], false)
		}
	}
}

// command is a command that takes a lock and does next to nothing.
type command struct {
	env, locked []string
	// bare is the same without the lock. more has how much more the locked one does.
	bare []string
	more row
	// locks, if set, is the prefix of the keys of its locks. locksRow has the requests for them that the proxy
	// has seen, and anew the same with the opening of another connection.
	locks          string
	locksRow, anew row
}

// programs measures commands in turn. repolock opens a connection for its lock, and restic has one open.
func (b *bench) programs(at place, p *proxy.Proxy, mode replock.Mode, open, anew *group) {
	does := map[replock.Mode]string{replock.Shared: "restic cat config", replock.Exclusive: "restic check"}[mode]
	all := []*command{{
		env:      resticEnv(at, p),
		locked:   restic(strings.Fields(does)[1:]...),
		locks:    "restic/locks/",
		locksRow: row{name: does + ", its requests on locks/"},
		anew:     row{name: does + ", its requests on locks/, and a connection"},
	}}
	other := onS3.on(at.server)
	for _, params := range []string{"", "&conditions=kept"} {
		if mode == replock.Shared && params != "" {
			continue // the same as without
		}
		run := func(lock string) []string {
			return []string{b.repolock, "run", "--quiet", lock, "--repo", other.securely(p) + params, "--", "true"}
		}
		name := fmt.Sprintf("repolock run --%s -- true, s3%s, less --no-lock", mode, strings.Replace(params, "&", ", ", 1))
		all = append(all, &command{more: row{name: name}, locked: run("--" + mode.String()), bare: run("--no-lock")})
	}
	for range rounds.Fewer(9, 2) {
		for _, c := range all {
			c.measure(b.B, p)
		}
	}
	for _, c := range all {
		if c.locks != "" {
			open.rows, anew.rows = append(open.rows, c.locksRow), append(anew.rows, c.anew)
		} else {
			anew.rows = append(anew.rows, c.more)
		}
	}
}

func restic(args ...string) []string {
	return append([]string{"restic", "--quiet", "--no-cache"}, args...)
}

func resticEnv(at place, p *proxy.Proxy) []string {
	return []string{"RESTIC_REPOSITORY=s3:https://" + p.Host() + "/" + at.bucket + "/restic", "RESTIC_PASSWORD=bench", "AWS_DEFAULT_REGION=us-east-1"}
}

// measure runs it once, and once without its lock or beside the opening of a connection.
func (c *command) measure(b *testing.B, p *proxy.Proxy) {
	b.Helper()
	passed(p)
	locked := c.timed(b, c.locked)
	with := passed(p)
	if c.locks == "" {
		bare := c.timed(b, c.bare)
		without := passed(p)
		c.more.n++
		c.more.both = append(c.more.both, locked-bare)
		c.more.trips[0] = append(c.more.trips[0], with.Trips()-without.Trips())
		c.more.requests[0] = append(c.more.requests[0], len(with)-len(without))
		return
	}
	acquire, release := lockPart(with, c.locks)
	if len(acquire) == 0 || len(release) == 0 {
		b.Fatalf("%v took no lock:\n%v", c.locked, with)
	}
	connecting := connecting(b, p)
	for r, more := range map[*row]time.Duration{&c.locksRow: 0, &c.anew: connecting} {
		r.n++
		r.lasted(more+lasted(acquire), lasted(release))
		r.count(0, acquire)
		r.count(1, release)
	}
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

// timed returns how long one of its command lines takes.
func (c *command) timed(b *testing.B, args []string) time.Duration {
	b.Helper()
	cmd := exec.Command(args[0], args[1:]...)
	cmd.Env = append(os.Environ(), c.env...)
	start := time.Now()
	assert.Output(b, cmd)
	return time.Since(start)
}

// settling is the age from which a flag no longer counts as one of an acquirer that is about to withdraw.
const settling = 4 * time.Second

// amongOthers measures acquires beside shared locks of others: of live holders, and of crashed ones.
func (b *bench) amongOthers() {
	shared := group{name: "shared lock on MinIO over TLS, on an open connection, among others' shared locks"}
	exclusive := group{name: "exclusive lock on MinIO over TLS, on an open connection, among others' shared locks"}
	few := rounds.Fewer(20, 3)
	numbers := []int{0, 100, rounds.Fewer(10_000, 1000)}
	for i, n := range numbers {
		b.say("%d shared locks on MinIO", n)
		at := onS3.on(onS3.shared(b))
		p := b.proxied(at)
		s := warm(b.B, at.securely(p)+"&conditions=kept")
		acquire := func(mode replock.Mode, times int, refused bool, name string) row {
			r := row{name: name}
			for range times {
				r.measure(b.B, p, always(engine(b.B, s, mode)), refused)
			}
			return r
		}
		flags(b.B, warm(b.B, at.repo()), n)
		expire := time.Now().Add(replock.DefaultTTL)
		time.Sleep(settling)
		outcome := ", refused"
		if n == 0 {
			outcome = ""
		}
		shared.rows = append(shared.rows, acquire(replock.Shared, few, false, fmt.Sprint(n, " live")))
		exclusive.rows = append(exclusive.rows, acquire(replock.Exclusive, few, n > 0, fmt.Sprint(n, " live", outcome)))
		if i < len(numbers)-1 {
			continue
		}
		b.say("waiting for the %d to expire", n)
		time.Sleep(time.Until(expire.Add(4 * time.Second))) // the engine's slack for the store's clock, twice
		shared.rows = append(shared.rows, acquire(replock.Shared, few, false, fmt.Sprint(n, " stale")))
		// The first one removes them.
		exclusive.rows = append(exclusive.rows, acquire(replock.Exclusive, 1, false, fmt.Sprint(n, " stale, removed")))
		assert.Equal(b, len(at.left()), 0, "stale locks that weren't removed, of %d", n)
	}
	b.table = append(b.table, shared, exclusive)
}
