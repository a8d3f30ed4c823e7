//go:build linux && minio && programs

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/cloudsticlock"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// BenchmarkLocks measures what a lock costs, and prints one table in Markdown: see docs/benchmarks.md. With
// -short it only checks that it works.
func BenchmarkLocks(b *testing.B) {
	m := &bench{work: b.TempDir(), start: time.Now()}
	m.repolock = filepath.Join(m.work, "repolock")
	versions := in(b, ".", `go list -C minio -m github.com/minio/minio; restic version; flock --version | head -n 1
go list -m github.com/aws/aws-sdk-go-v2/service/s3 github.com/minio/minio-go/v7`)
	in(b, "..", "go build -trimpath -o "+m.repolock+" ./cmd/repolock")
	for _, section := range []struct {
		name string
		run  func(*bench)
	}{
		{"processes", (*bench).processes}, {"hand-over", (*bench).handOver}, {"held", (*bench).heldLocks},
		{"latencies", (*bench).latencies}, {"among", (*bench).amongOthers}, {"refreshing", (*bench).refreshing},
	} {
		b.Run(section.name, func(b *testing.B) { m.B = b; section.run(m) })
	}
	if b.Failed() {
		return
	}
	programs := strings.ReplaceAll(strings.TrimSpace(versions), "\n", "; ")
	fmt.Printf("\n%s/%s, %d CPUs; %s; %s.\n\n%s", runtime.GOOS, runtime.GOARCH, runtime.NumCPU(), runtime.Version(), programs, m.table.markdown(costs))
	for _, note := range m.notes {
		fmt.Printf("\n- %s\n", note)
	}
}

// lock acquires a lock as a program does that has just begun.
type lock func(context.Context, store.Store, replock.Mode) (held, error)

type held interface{ Release(context.Context) error }

// engine is the engine in a new process: it knows nothing of the store yet.
func engine(ctx context.Context, s store.Store, mode replock.Mode) (held, error) {
	l, err := replock.New(s, replock.Options{})
	if err != nil {
		return nil, err
	}
	if mode == replock.Exclusive {
		return l.Exclusive(ctx, "bench")
	}
	return l.Shared(ctx, "bench")
}

// original is the original protocol.
func original(ctx context.Context, s store.Store, mode replock.Mode) (held, error) {
	l := &cloudsticlock.Locker{Store: s, Clock: clock.System{}, Holder: "bench (pid 1)"}
	if mode == replock.Exclusive {
		return l.Exclusive(ctx, "bench")
	}
	return l.Shared(ctx, "bench")
}

// warm opens a store, and makes it sign in and connect.
func warm(b *testing.B, url string) store.Store {
	b.Helper()
	s := openStore(b, url)
	assert.OK(b, assert.Err(s.List(b.Context(), "warm-up", "")))
	return s
}

// measure adds one acquire and release to a row. A lock that must be refused isn't released.
func (r *row) measure(b *testing.B, p *proxy.Proxy, s store.Store, lock lock, mode replock.Mode, refused bool) {
	b.Helper()
	passed(p)
	start := time.Now()
	k, err := lock(b.Context(), s, mode)
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

// lasted notes the times of an acquire and of its release.
func (r *row) lasted(took, released time.Duration) {
	r.took, r.released, r.both = append(r.took, took), append(r.released, released), append(r.both, took+released)
}

// count notes the requests of an acquire, 0, or a release, 1.
func (r *row) count(which int, l proxy.Log) {
	r.trips[which] = append(r.trips[which], l.Trips())
	r.requests[which] = append(r.requests[which], len(l))
}

// latencies measures acquire and release on MinIO. The proxy adds nothing each way, the latency of a store in
// the same country, or the latency of one on another continent.
func (b *bench) latencies() {
	at := onS3.on(onS3.shared(b))
	p := proxied(b, at, proxy.Behaviour{})
	(&command{env: resticEnv(at, p)}).timed(b.B, restic("init"))
	for _, c := range []struct {
		added time.Duration
		times int
	}{{0, 60}, {20 * time.Millisecond, 20}, {80 * time.Millisecond, 8}} {
		p.Behave(proxy.Behaviour{Latency: c.added})
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			g := group{name: fmt.Sprintf("%s lock on MinIO, %d ms added each way", mode, c.added.Milliseconds())}
			b.say("%s", g.name)
			b.libraries(at, p, mode, rounds.Fewer(c.times, 2), &g)
			b.programs(at, p, mode, &g)
			b.table = append(b.table, g)
		}
	}
}

// libraries measures libraries in turn, so that other load on the machine affects all of them. Each has its
// own store and connections.
func (b *bench) libraries(at place, p *proxy.Proxy, mode replock.Mode, times int, g *group) {
	s3, minio := at.through(p), onMinIO.url(p.Host(), at.bucket)
	var stores []store.Store
	var locks []lock
	for _, c := range []struct {
		name, url string
		lock      lock
	}{
		{"repolock, s3, conditions=kept", s3 + "&conditions=kept", engine},
		{"repolock, minio, conditions=kept", minio + "&conditions=kept", engine},
		{"repolock, s3", s3, engine},
		{"repolock, minio", minio, engine},
		{"original protocol, s3", s3, original},
	} {
		if mode == replock.Shared && strings.HasSuffix(c.url, "kept") {
			continue // as the same without
		}
		g.rows = append(g.rows, row{name: c.name})
		stores, locks = append(stores, warm(b.B, c.url)), append(locks, c.lock)
	}
	for range times {
		for i := range g.rows {
			g.rows[i].measure(b.B, p, stores[i], locks[i], mode, false)
		}
	}
}

// command is a command that takes a lock and does next to nothing, with its measurements: how
// much more it does than the same without its lock.
type command struct {
	more         row
	locked, bare []string
	env          []string
	// locks, if set, is the prefix of the keys of its locks. Then locksRow has the requests
	// for them that the proxy has seen.
	locks    string
	locksRow row
}

// programs measures whole commands, restic's and ours, also in turn.
func (b *bench) programs(at place, p *proxy.Proxy, mode replock.Mode, g *group) {
	args := map[replock.Mode][]string{replock.Shared: {"cat", "config"}, replock.Exclusive: {"check"}}[mode]
	name := "restic " + strings.Join(args, " ")
	all := []*command{{
		more:     row{name: name + ", less --no-lock"},
		locked:   restic(args...),
		bare:     restic(append([]string{"--no-lock"}, args...)...),
		env:      resticEnv(at, p),
		locks:    "restic/locks/",
		locksRow: row{name: name + ", its requests on locks/"},
	}}
	other := onS3.on(at.server)
	for _, params := range []string{"", "&conditions=kept"} {
		run := func(lock string) []string {
			return []string{b.repolock, "run", lock, "--repo", other.through(p) + params, "--", "true"}
		}
		name := fmt.Sprintf("repolock run --%s -- true, s3%s, less --no-lock", mode, strings.Replace(params, "&", ", ", 1))
		all = append([]*command{{more: row{name: name}, locked: run("--" + mode.String()), bare: run("--no-lock")}}, all...)
	}
	for range rounds.Fewer(5, 2) {
		for _, c := range all {
			c.measure(b.B, p)
		}
	}
	for _, c := range all {
		if c.locks != "" {
			g.rows = append(g.rows, c.locksRow)
		}
		g.rows = append(g.rows, c.more)
	}
}

func restic(args ...string) []string {
	return append([]string{"restic", "--quiet", "--no-cache"}, args...)
}

func resticEnv(at place, p *proxy.Proxy) []string {
	return []string{"RESTIC_REPOSITORY=s3:http://" + p.Host() + "/" + at.bucket + "/restic", "RESTIC_PASSWORD=bench", "AWS_DEFAULT_REGION=us-east-1"}
}

// measure runs it once with its lock and once without.
func (c *command) measure(b *testing.B, p *proxy.Proxy) {
	b.Helper()
	passed(p)
	locked := c.timed(b, c.locked)
	with := passed(p)
	bare := c.timed(b, c.bare)
	without := passed(p)
	c.more.n++
	c.more.both = append(c.more.both, locked-bare)
	c.more.trips[0] = append(c.more.trips[0], with.Trips()-without.Trips())
	c.more.requests[0] = append(c.more.requests[0], len(with)-len(without))
	if c.locks == "" {
		return
	}
	acquire, release := lockPart(with, c.locks)
	if len(acquire) == 0 || len(release) == 0 {
		b.Fatalf("%v took no lock:\n%v", c.locked, with)
	}
	c.locksRow.n++
	c.locksRow.lasted(lasted(acquire), lasted(release))
	c.locksRow.count(0, acquire)
	c.locksRow.count(1, release)
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
	shared := group{name: "shared lock on MinIO, among others' shared locks"}
	exclusive := group{name: "exclusive lock on MinIO, among others' shared locks"}
	few := rounds.Fewer(20, 3)
	numbers := []int{0, 100, rounds.Fewer(10_000, 1000)}
	for i, n := range numbers {
		b.say("%d shared locks on MinIO", n)
		at := onS3.on(onS3.shared(b))
		p := proxied(b, at, proxy.Behaviour{})
		s := warm(b.B, at.through(p)+"&conditions=kept")
		acquire := func(mode replock.Mode, times int, refused bool, name string) row {
			r := row{name: name}
			for range times {
				r.measure(b.B, p, s, engine, mode, refused)
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

// flags puts the flags of n shared locks. The first ones of a listing are the youngest, as if
// their holders refreshed them.
func flags(b *testing.B, s store.Store, n int) {
	b.Helper()
	key, body := specimen(b, s)
	stem := key[:strings.LastIndex(key, "-")+1]
	eachOf(b, 16, n, func(i int) error {
		id := fmt.Sprintf("%032x", n-1-i)
		return assert.Err(s.Put(b.Context(), stem+id, body(id), store.PutOptions{}))
	})
}

// specimen returns the key and the body of a lock of another machine: a real lock's body, with another id and
// the present time.
func specimen(b *testing.B, s store.Store) (key string, body func(id string) []byte) {
	b.Helper()
	l, err := replock.New(s, replock.Options{})
	assert.OK(b, err)
	k, err := l.Shared(b.Context(), "backup")
	assert.OK(b, err)
	raw, _, err := s.Get(b.Context(), k.Key(), 1<<16)
	assert.OK(b, errors.Join(err, k.Release(b.Context())))
	fields := map[string]any{}
	decoder := json.NewDecoder(bytes.NewReader(raw))
	decoder.UseNumber() // a float would round the largest of them
	assert.OK(b, decoder.Decode(&fields))
	fields["host_id"], fields["boot_id"] = "another", "another"
	return k.Key(), func(id string) []byte {
		mine, now := maps.Clone(fields), time.Now().UTC()
		mine["id"], mine["refreshed_at"], mine["expires_at"] = id, now, now.Add(replock.DefaultTTL)
		raw, err := json.Marshal(mine)
		if err != nil {
			panic(err) // it was JSON before
		}
		return raw
	}
}
