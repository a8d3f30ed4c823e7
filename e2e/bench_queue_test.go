//go:build linux && programs

package e2e

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/test/rounds"
	running "github.com/repolock/repolock/internal/test/server"
	"github.com/repolock/repolock/internal/test/sshd"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// BenchmarkQueue measures a lock that many clients want at once, and prints tables in Markdown: see "A queue" in
// docs/evidence/benchmarks.md. BEFORE can name another build of repolock. Then the tables of processes measure both, in
// turns. With -short it only checks that it works.
func BenchmarkQueue(b *testing.B) {
	q := &queues{work: b.TempDir(), start: time.Now()}
	now := filepath.Join(q.work, "repolock")
	versions := in(b, ".", "flock --version | head -n 1; etcd --version | head -n 1; ssh -V 2>&1")
	build(b, now, "go build")
	if before := os.Getenv("BEFORE"); before != "" {
		versions += in(b, ".", "echo before: $("+before+" version | head -n 1)")
		q.builds = append(q.builds, binary{"repolock, before", before})
	}
	q.builds = append(q.builds, binary{"repolock", now})
	for _, section := range []struct {
		name string
		run  func(*queues)
	}{{"processes", (*queues).processes}, {"crowd", (*queues).crowd}, {"clients", (*queues).clients}} {
		b.Run(section.name, func(b *testing.B) { q.B = b; section.run(q) })
	}
	if b.Failed() {
		return
	}
	printTables(versions, q.report.String())
}

// queues is one run of BenchmarkQueue.
type queues struct {
	*testing.B // of the section
	work       string
	builds     []binary // of repolock
	start      time.Time
	report     strings.Builder // is printed if no section fails
}

// binary is a build of repolock.
type binary struct{ name, path string }

func (q *queues) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: %3.0f s: %s\n", time.Since(q.start).Seconds(), fmt.Sprintf(format, args...))
}

// taker acquires a lock, and returns the function that releases it.
type taker func(context.Context) (release func() error, err error)

// line is the clients of one lock.
type line struct {
	takers []taker // the last one has the lock first
	// count returns the requests since its last call, in all and by kind. It is nil if they can't be counted.
	count func() (int, map[string]int)
}

const (
	// gathering is the time for which the first holder has the lock, while the others come and wait.
	gathering = 2 * time.Second
	// drainLimit bounds the time in which the waiters get the lock. The rest of them then stop to wait, and aren't
	// measured.
	drainLimit = 45 * time.Second
)

// drain lets all clients but one wait for the lock of that one, and then hold it one after another. It measures the
// times from the begin of a release to the acquisition by the next client.
func (q *queues) drain(r row, l line, gathering, hold time.Duration) {
	q.Helper()
	last := len(l.takers) - 1
	release, err := l.takers[last](q.Context())
	assert.OK(q, err)
	if l.count != nil {
		l.count()
	}
	ctx, cancel := context.WithCancel(q.Context())
	defer cancel()
	var mu sync.Mutex // guards freed, and r
	var freed time.Time
	var all sync.WaitGroup
	free := func(release func() error) {
		mu.Lock()
		freed = time.Now()
		mu.Unlock()
		assert.Is(q, release(), nil)
	}
	for _, take := range l.takers[:last] {
		all.Go(func() {
			release, err := take(ctx)
			acquired := time.Now()
			if err != nil {
				assert.That(q, ctx.Err() != nil, "%s: %v", r.name, err)
				return
			}
			mu.Lock()
			r.took("hand-over ms", acquired.Sub(freed))
			mu.Unlock()
			time.Sleep(hold)
			free(release)
		})
	}
	time.Sleep(gathering)
	began := time.Now()
	limit := time.AfterFunc(drainLimit, cancel)
	free(release)
	all.Wait()
	limit.Stop()
	r.add("drain s", time.Since(began).Seconds())
	if l.count == nil {
		return
	}
	sent, by := l.count()
	r.add("requests in all", float64(sent))
	for kind, n := range by {
		r.add(kind, float64(n))
	}
}

// clients measures waiters that are clients of libraries: each has a connection, a file or a store of its own, in this
// process.
func (q *queues) clients() {
	s3 := httptest.NewServer(fakes3.New("bucket"))
	q.Cleanup(s3.Close)
	ssh := sshd.Apart(q, "MaxStartups 300")
	q.Setenv("PATH", ssh.Bin()+":"+os.Getenv("PATH"))
	e := startEtcd(q.B)
	s3Line := func(trip time.Duration) func(int) line {
		p, err := proxy.New(s3.URL)
		assert.OK(q, err)
		q.Cleanup(p.Close)
		p.Behave(proxy.Behaviour{Latency: trip / 2})
		return func(n int) line {
			return q.ours(inBucket(p.Host()), fmt.Sprintf("%v-%d", trip, n), n)
		}
	}
	for _, size := range []struct {
		waiters, times int
		hold           time.Duration
	}{{1, rounds.Fewer(10, 1), 200 * time.Millisecond}, {10, rounds.Fewer(2, 1), 200 * time.Millisecond}, {rounds.Fewer(100, 12), 1, 50 * time.Millisecond}} {
		var all []subject
		add := func(name string, open func(n int) line) {
			q.say("%d waiters: %s", size.waiters, name)
			l := open(size.waiters + 1)
			all = append(all, subject{name, func(r row) {
				q.say("%d waiters: %s", size.waiters, name)
				q.drain(r, l, gathering, size.hold)
			}})
		}
		add("flock", q.flocks)
		add("etcd", e.line)
		add("repolock, a directory", func(n int) line { return q.ours(q.TempDir(), "queue", n) })
		add("repolock, S3, 0 ms a request", s3Line(0))
		add("repolock, S3, 40 ms a request", s3Line(40*time.Millisecond))
		add("repolock, SFTP", func(n int) line { return q.ours(ssh.URL(q.TempDir()), "queue", n) })
		q.report.WriteString(markdown(fmt.Sprintf("%d waiting, each holds for %d ms", size.waiters, size.hold.Milliseconds()), inTurns(size.times, all...)))
	}
}

// connections is the number of stores or locks that are opened, acquired or released at once.
const connections = 8

// ours are clients of one repository, each with a store of its own.
func (q *queues) ours(url, name string, n int) line {
	stores, l := make([]*hookstore.Store, n), line{takers: make([]taker, n)}
	at := connections
	if strings.HasPrefix(url, "sftp:") {
		at = 1 // many handshakes at once take longer than ssh waits, if the machine is busy
	}
	eachOf(q.B, at, n, func(i int) error {
		s := openStore(q, url)
		if c, is := s.(io.Closer); is {
			q.Cleanup(func() { assert.Is(q, c.Close(), nil) })
		}
		stores[i] = &hookstore.Store{Store: s, Watched: !strings.Contains(url, "://")}
		locker, err := replock.New(stores[i], replock.Options{Name: name})
		if err == nil {
			_, err = s.List(q.Context(), "warm-up", "") // makes it sign in and connect
		}
		l.takers[i] = func(ctx context.Context) (func() error, error) {
			k, err := locker.Exclusive(ctx, "bench", replock.WithParent(q.Context()))
			return func() error { return release(k) }, err
		}
		return err
	})
	l.count = func() (sent int, by map[string]int) {
		by = map[string]int{"gets": 0, "lists": 0, "puts": 0, "deletes": 0}
		for _, s := range stores {
			n, kinds := s.Count()
			sent += n
			for kind, n := range kinds {
				by[map[string]string{"get": "gets", "list": "lists", "put": "puts", "delete": "deletes", "delete all": "deletes"}[kind]] += n
			}
		}
		return sent, by
	}
	return l
}

// inBucket is the URL of a repository on the fake of S3, or on a proxy before it.
func inBucket(host string) string { return onS3.url(host, "bucket") + "&conditions=kept" }

// flocks are clients of flock(2) on one file.
func (q *queues) flocks(n int) line {
	path := filepath.Join(q.TempDir(), "file")
	return line{takers: slices.Repeat([]taker{func(context.Context) (func() error, error) {
		f, err := os.Create(path)
		if err != nil {
			return nil, err
		}
		return f.Close, syscall.Flock(int(f.Fd()), syscall.LOCK_EX)
	}}, n)}
}

// etcd is a server, by its own gateway for JSON.
type etcd struct {
	url  string
	sent atomic.Int64
}

// startEtcd starts Debian's etcd, which ends with the benchmark.
func startEtcd(b *testing.B) *etcd {
	b.Helper()
	at := func() string { return fmt.Sprint("http://127.0.0.1:", running.Port(b)) }
	e, peer := &etcd{url: at()}, at()
	p, err := running.Start(exec.Command("etcd", "--data-dir", b.TempDir(), "--listen-client-urls", e.url, "--advertise-client-urls", e.url,
		"--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", "default="+peer, "--log-level", "error"), func() bool {
		a, err := http.Get(e.url + "/health")
		if err != nil {
			return false
		}
		defer a.Body.Close()
		return a.StatusCode == http.StatusOK
	})
	assert.OK(b, err)
	b.Cleanup(func() { p.End(os.Kill) })
	return e
}

// call sends a request, and returns the fields of its answer.
func (e *etcd) call(ctx context.Context, path string, fields map[string]string) (answer map[string]any, err error) {
	body, err := json.Marshal(fields)
	if err != nil {
		return nil, err
	}
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, e.url+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	e.sent.Add(1)
	a, err := http.DefaultClient.Do(r)
	if err != nil {
		return nil, err
	}
	defer a.Body.Close()
	raw, err := io.ReadAll(a.Body)
	if err != nil {
		return nil, err
	}
	if a.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s: %s: %s", path, a.Status, raw)
	}
	return answer, json.Unmarshal(raw, &answer)
}

// line are clients of one lock of etcd, each with a lease of its own.
func (e *etcd) line(n int) line {
	name := base64.StdEncoding.EncodeToString(fmt.Append(nil, "queue-", n))
	take := func(ctx context.Context) (func() error, error) {
		lease, err := e.call(ctx, "/v3/lease/grant", map[string]string{"TTL": "60"})
		if err != nil {
			return nil, err
		}
		id := fmt.Sprint(lease["ID"])
		lock, err := e.call(ctx, "/v3/lock/lock", map[string]string{"name": name, "lease": id})
		if err != nil {
			return nil, err
		}
		return func() error {
			_, err := e.call(context.Background(), "/v3/lock/unlock", map[string]string{"key": fmt.Sprint(lock["key"])})
			_, revoked := e.call(context.Background(), "/v3/lease/revoke", map[string]string{"ID": id})
			return errors.Join(err, revoked)
		}, nil
	}
	return line{takers: slices.Repeat([]taker{take}, n), count: func() (int, map[string]int) { return int(e.sent.Swap(0)), nil }}
}

// processes measures waiters that are processes, each with a command under its lock. A hand-over is the time from the
// end of the one command to the begin of the next, so it includes the start of a shell.
func (q *queues) processes() {
	s3 := httptest.NewServer(fakes3.New("bucket"))
	q.Cleanup(s3.Close)
	directory, file := repository(q.B), filepath.Join(q.work, "file")
	bucket := inBucket(strings.TrimPrefix(s3.URL, "http://"))
	_, err := openStore(q, bucket).Put(q.Context(), "keys/0123", []byte("key"), store.PutOptions{}) // as repository does
	assert.OK(q, err)
	for _, size := range []struct {
		waiters, times  int
		hold, gathering time.Duration
	}{{1, rounds.Fewer(40, 2), 0, 300 * time.Millisecond}, {10, rounds.Fewer(2, 1), 200 * time.Millisecond, gathering}} {
		var all []subject
		add := func(name string, lock ...string) {
			l := line{takers: slices.Repeat([]taker{under(lock)}, size.waiters+1)}
			all = append(all, subject{name, func(r row) { q.drain(r, l, size.gathering, size.hold) }})
		}
		add("flock FILE", "flock", file)
		for _, p := range q.builds {
			add(p.name+", a directory", p.path, "run", "--exclusive", "--quiet", "--wait", "10m", "--repo", directory, "--")
		}
		for _, p := range q.builds {
			if size.waiters > 1 {
				add(p.name+", S3, 0 ms a request", p.path, "run", "--exclusive", "--quiet", "--wait", "10m", "--repo", bucket, "--")
			}
		}
		q.say("%d processes wait", size.waiters)
		rows := inTurns(size.times, all...)
		for _, r := range rows[1:] {
			r.add("ms beyond flock", r.quantile("hand-over ms", 50)-rows[0].quantile("hand-over ms", 50))
		}
		q.report.WriteString(markdown(fmt.Sprintf("processes, %d waiting, each holds for %d ms", size.waiters, size.hold.Milliseconds()), rows))
	}
}

// under runs a shell under a lock: release lets it end.
func under(lock []string) taker {
	return func(ctx context.Context) (func() error, error) {
		c, in, err := heldBy(ctx, lock, "sh", "-c", "echo; read line; exit 0")
		if err != nil {
			return nil, err
		}
		return func() error { return errors.Join(in.Close(), c.Wait()) }, nil
	}
}

// heldBy starts a command under a lock, which prints a line when it has it, and returns its stdin.
func heldBy(ctx context.Context, lock []string, command ...string) (*exec.Cmd, io.Closer, error) {
	args := slices.Concat(lock, command)
	c := exec.CommandContext(ctx, args[0], args[1:]...)
	c.Cancel = func() error { return c.Process.Signal(os.Interrupt) }
	in, err := c.StdinPipe()
	if err != nil {
		return nil, nil, err
	}
	out, err := c.StdoutPipe()
	if err != nil {
		return nil, nil, err
	}
	if err := c.Start(); err != nil {
		return nil, nil, err
	}
	if _, err := io.ReadFull(out, make([]byte, 1)); err != nil {
		return nil, nil, fmt.Errorf("%v: %w", args, errors.Join(err, c.Wait()))
	}
	return c, in, nil
}

// crowds are the numbers of clients that contend at once, with the number of locks that each acquires.
var crowds = []struct{ clients, locks int }{{1, 60}, {4, 24}, {16, 9}, {48, 3}, {100, 2}}

// crowd measures how many locks a crowd of processes acquires in a second on a directory. Each client acquires one lock
// after another and holds it for 5 ms. A third of the locks are exclusive, the others shared.
func (q *queues) crowd() {
	var all []subject
	add := func(name string, lock func(exclusive bool) []string) {
		all = append(all, subject{name, func(r row) {
			for _, c := range crowds {
				locks := rounds.Fewer(c.locks, 1)
				q.say("%d clients: %s", c.clients, name)
				began := time.Now()
				var clients sync.WaitGroup
				for i := range c.clients {
					clients.Go(func() {
						for n := range locks {
							args := append(lock((i+n)%3 == 0), "sleep", "0.005")
							out, err := exec.Command(args[0], args[1:]...).CombinedOutput()
							assert.That(q, err == nil, "%v: %v: %s", args, err, out)
						}
					})
				}
				clients.Wait()
				r.add(clientsOf(c.clients), float64(c.clients*locks)/time.Since(began).Seconds())
			}
		}})
	}
	file, directory := filepath.Join(q.work, "crowd"), repository(q.B)
	add("flock FILE", func(exclusive bool) []string {
		if exclusive {
			return []string{"flock", "-x", file}
		}
		return []string{"flock", "-s", file}
	})
	for _, p := range q.builds {
		add(p.name, func(exclusive bool) []string {
			mode := "--shared"
			if exclusive {
				mode = "--exclusive"
			}
			return []string{p.path, "run", mode, "--quiet", "--wait", "10m", "--repo", directory, "--"}
		})
	}
	rows := inTurns(rounds.Fewer(3, 1), all...)
	for _, r := range rows {
		ratio := newRow(r.name + ", × its one client")
		for _, c := range crowds {
			ratio.add(clientsOf(c.clients), r.quantile(clientsOf(c.clients), 50)/r.quantile(clientsOf(1), 50))
		}
		rows = append(rows, ratio)
	}
	q.report.WriteString(markdown("locks a second on a directory, two shared for each exclusive, each held for 5 ms", rows))
}

// clientsOf is the header of a column of crowds.
func clientsOf(n int) string {
	if n == 1 {
		return "1 client"
	}
	return fmt.Sprint(n, " clients")
}

// release returns an error if the lock was lost.
func release(k *replock.Lock) error {
	if lost := k.Lost(); lost != nil {
		return lost
	}
	return k.Release(context.Background())
}
