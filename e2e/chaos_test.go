//go:build unix && minio

package e2e

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/plainstore"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/replock"
)

// acquisitions is the least number of locks that a run of TestChaos takes.
const acquisitions = 500

// noEnd is a limit for a phase. Only a hang reaches it.
const noEnd = time.Hour

// TestChaos: real processes contend for a lock and are killed, stopped past the deadline, and
// terminated. On MinIO all requests but the children's own writes pass proxies that lose,
// delay and repeat requests and cut answers off. Half of the clients see a clock that is an
// hour wrong. The server crashes twice. No child ever writes beside an exclusive one.
func TestChaos(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		repo := t.TempDir()
		phases(t, repo, []string{repo, repo, repo, repo, repo, repo}, nil)
	})
	t.Run("MinIO", func(t *testing.T) {
		t.Parallel()
		server := ownMinIO(t)
		s3 := onS3.on(server)
		minio := place{onMinIO, server, s3.bucket}
		var w weather
		var clients []string
		for _, at := range []struct {
			place
			shift time.Duration
		}{{s3, 0}, {minio, time.Hour}, {minio, 0}, {s3, -time.Hour}} {
			p := proxied(t, server, proxy.Behaviour{Decide: w.decide, Shift: at.shift, Sign: root})
			clients = append(clients, at.through(p), at.through(p))
		}
		phases(t, s3.repo(), clients, []func(){
			func() { crash(server, 3*time.Second) },
			func() { crash(server, ttl+5*time.Second) },
		})
		w.happened(t)
	})
}

// phases makes clients contend for a lock. Two further phases ensure what chance might not: a
// resumed lock, and a lost one.
func phases(t *testing.T, data string, clients []string, meanwhile []func()) {
	t.Run("contention", func(t *testing.T) {
		c := newChaos(t, data, "contention", clients...)
		c.missing = func(n torture.Counts) (names []string) {
			if n.Acquisitions() < acquisitions {
				names = append(names, fmt.Sprint("more than ", n.Acquisitions(), " acquisitions"))
			}
			return append(names, zero(map[string]int{
				"exclusive": n.Exclusive, "held": n.Held, "killed": n.Killed, "stopped": n.Stopped, "terminated": n.Terminated,
			})...)
		}
		c.run(meanwhile)
		c.holds()
	})
	t.Run("alone", func(t *testing.T) { // no other holder can get in while it is stopped
		c := newChaos(t, data, "alone", clients[0])
		c.Chances = torture.Chances{Long: -1, Stop: 1, Kill: -1, Term: -1}
		c.missing = func(n torture.Counts) []string { return zero(map[string]int{"resumed": n.Resumed}) }
		c.run(nil)
		c.holds()
	})
	t.Run("overtaken", func(t *testing.T) { // by another client that wants the lock while one is stopped
		c := newChaos(t, data, "overtaken", clients[0], clients[1], clients[2])
		c.Chances = torture.Chances{Exclusive: 1, Long: -1, Stop: 0.5, Kill: -1, Term: -1}
		c.missing = func(n torture.Counts) []string { return zero(map[string]int{"lost": n.Lost}) }
		c.run(nil)
		c.holds()
	})
}

// zero returns the names of the events that haven't happened yet.
func zero(counts map[string]int) (names []string) {
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if counts[name] == 0 {
			names = append(names, name)
		}
	}
	return names
}

// TestChaosFinds: chaos finds the violations of a lock that doesn't hold: with --on-lost warn,
// a process that is stopped past its ttl and continued writes on.
func TestChaosFinds(t *testing.T) {
	repo := t.TempDir()
	c := newChaos(t, repo, "warn")
	c.flags = []string{"--on-lost", "warn"}
	for range 4 {
		c.contend(repo)
	}
	c.missing = func(n torture.Counts) []string { return zero(map[string]int{"violations": n.Violations}) }
	c.Chances = torture.Chances{Exclusive: 0.5, Long: -1, Stop: 0.3, Kill: -1, Term: -1}
	c.run(nil)
	if v := c.report.Verdict; v.Result != judge.Violated {
		t.Errorf("%s %s", v.Result, v.Why)
	} else {
		t.Logf("after %d acquisitions: %s", c.report.Counts.Acquisitions(), v.Violations[0].Text)
	}
}

// chaos is one run.
type chaos struct {
	t *testing.T
	torture.Options
	// data is the repository that the children write to, not through a proxy.
	data  string
	lock  string // its name
	flags []string
	// missing returns the required events that haven't happened yet.
	missing func(torture.Counts) []string
	dir     string // of the evidence
	report  torture.Report
	err     error
}

func newChaos(t *testing.T, data, lock string, clients ...string) *chaos {
	t.Helper()
	dir, err := os.MkdirTemp("", "repolock-chaos-")
	if err != nil {
		t.Fatal(err)
	}
	c := &chaos{t: t, data: data, lock: lock, dir: dir}
	c.Options = torture.Options{
		Prefix: "index/locks/" + lock + "/", TTL: ttl, Duration: noEnd,
		Seed: rand.Uint64(), JudgeFor: 5 * time.Minute,
	}
	for _, at := range clients {
		c.contend(at)
	}
	t.Cleanup(c.keep)
	return c
}

// contend adds a client that takes its locks at a URL.
func (c *chaos) contend(locks string) {
	c.Clients = append(c.Clients, torture.Client{Command: func(w torture.Work) []string {
		return torture.Repolock{
			Program: filepath.Join(bin, "repolock"), Locks: locks, Data: c.data, Name: c.lock, TTL: ttl, Flags: c.flags,
		}.Command(w)
	}})
}

// run runs until all required events have happened. It spreads meanwhile over the run.
func (c *chaos) run(meanwhile []func()) {
	c.t.Helper()
	log := c.file("events.log")
	defer log.Close()
	c.Log = log
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	reached := make(chan int, 1)
	c.Progress = func(n torture.Counts) {
		if len(c.missing(n)) == 0 {
			cancel()
		}
		select {
		case reached <- n.Acquisitions():
		default:
		}
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.report, c.err = torture.Run(ctx, plainstore.Objects{Store: openStore(c.t, c.data)}, c.Options)
	}()
	for i, f := range meanwhile {
		for n := 0; n < (i+1)*acquisitions/(len(meanwhile)+1); {
			select {
			case n = <-reached:
			case <-done:
				c.t.Error("it ended too early")
				return
			}
		}
		f()
	}
	<-done
	if c.err != nil {
		c.t.Errorf("seed %d: %v", c.Seed, c.err)
	}
	c.t.Logf("seed %d, %d acquisitions: %+v; %d changes arrived late", c.Seed, c.report.Counts.Acquisitions(), c.report.Counts, c.report.Verdict.Late)
	if len(c.report.Left) > 0 || c.report.LeftBecause != nil {
		c.t.Errorf("left over: %v %q", c.report.LeftBecause, c.report.Left)
	}
}

// holds checks that no violation was found in a run that has had every required event.
func (c *chaos) holds() {
	c.t.Helper()
	if v := c.report.Verdict; v.Result != judge.NotFound {
		c.t.Errorf("%s: %s %v", v.Result, v.Why, v.Violations)
	}
	if names := c.missing(c.report.Counts); len(names) > 0 {
		c.t.Errorf("in %v there were not: %v", noEnd, names)
	}
}

// keep keeps the evidence if there is any.
func (c *chaos) keep() {
	if !c.t.Failed() {
		_ = os.RemoveAll(c.dir)
		return
	}
	picture := c.file("history.html")
	defer picture.Close()
	if err := c.report.Verdict.Picture(picture); err != nil {
		c.t.Error(err)
	}
	c.t.Logf("the log and the picture are in %s", c.dir)
}

func (c *chaos) file(name string) io.WriteCloser {
	c.t.Helper()
	f, err := os.Create(filepath.Join(c.dir, name))
	if err != nil {
		c.t.Fatal(err)
	}
	return f
}

// crash stops a server for a time.
func crash(s server, away time.Duration) {
	s.Kill()
	time.Sleep(away)
	s.Start()
}

// weather is the faults of a bad network, which meet some of the requests, and their counts.
type weather struct {
	mu    sync.Mutex
	count map[string]int
	all   int
	next  time.Time
}

// spell is the quiet time after each fault. A put that is applied late, or again, keeps others
// out for a ttl. Faults without a pause would let no client in.
const spell = 2 * time.Second

// kindsOfWeather: delays are longer than a client waits for an answer, so the request is
// applied after the client gave up, or is applied without an answer.
var kindsOfWeather = map[string]func() proxy.Fault{
	"lost answer":    func() proxy.Fault { return proxy.Fault{LoseAnswer: true} },
	"reset":          func() proxy.Fault { return proxy.Fault{Reset: true} },
	"cut off":        func() proxy.Fault { return proxy.Fault{Truncate: true} },
	"503":            func() proxy.Fault { return proxy.Throttled },
	"delayed":        func() proxy.Fault { return proxy.Fault{Before: rand.N(5 * time.Second)} },
	"answered late":  func() proxy.Fault { return proxy.Fault{After: rand.N(5 * time.Second)} },
	"applied late":   func() proxy.Fault { return proxy.Fault{Late: rand.N(ttl)} },
	"applied twice":  func() proxy.Fault { return proxy.Fault{Again: rand.N(ttl)} },
	"never answered": func() proxy.Fault { return proxy.Fault{Hang: true} },
}

func (w *weather) decide(proxy.Request) proxy.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.all++; time.Now().Before(w.next) || rand.IntN(4) > 0 {
		return proxy.Fault{}
	}
	w.next = time.Now().Add(spell)
	names := slices.Sorted(maps.Keys(kindsOfWeather))
	name := names[rand.IntN(len(names))]
	if w.count == nil {
		w.count = map[string]int{}
	}
	w.count[name]++
	return kindsOfWeather[name]()
}

// happened checks that each kind of fault has happened.
func (w *weather) happened(t *testing.T) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for name := range kindsOfWeather {
		if w.count[name] == 0 {
			t.Errorf("no request was %s", name)
		}
	}
	t.Log(fmt.Sprint(w.all, " requests for locks, of which were ", w.count))
}

// faults are those of a bad network and a bad store.
var faults = map[string]func(proxy.Request) proxy.Fault{
	"lost answers": chance(0.15, func() proxy.Fault { return proxy.Fault{LoseAnswer: true} }),
	"resets":       chance(0.2, func() proxy.Fault { return proxy.Fault{Reset: true} }),
	"truncated":    chance(0.15, func() proxy.Fault { return proxy.Fault{Truncate: true} }),
	"errors":       chance(0.2, func() proxy.Fault { return proxy.Fault{Status: 500, Code: "InternalError"} }),
	"conflicts":    onPuts(chance(0.4, func() proxy.Fault { return proxy.Fault{Status: 409, Code: "ConditionalRequestConflict"} })),
	"too many":     chance(0.2, func() proxy.Fault { return proxy.Fault{Status: 429, Code: "TooManyRequests"} }),
	// Longer than a client waits for an answer, so the request is applied after the client
	// gave up, or is applied without an answer.
	"delays": chance(0.1, func() proxy.Fault {
		if rand.IntN(2) == 0 {
			return proxy.Fault{Before: 5 * time.Second}
		}
		return proxy.Fault{After: 5 * time.Second}
	}),
	"late and again": chance(0.08, func() proxy.Fault {
		if rand.IntN(2) == 0 {
			return proxy.Fault{Late: rand.N(8 * time.Second)}
		}
		return proxy.Fault{Again: rand.N(8 * time.Second)}
	}),
	"storms": func(proxy.Request) proxy.Fault {
		if time.Now().Unix()%8 < 2 {
			return proxy.Throttled
		}
		return proxy.Fault{}
	},
}

// chance gives a share of all requests a fault.
func chance(p float64, fault func() proxy.Fault) func(proxy.Request) proxy.Fault {
	return func(proxy.Request) proxy.Fault {
		if rand.Float64() < p {
			return fault()
		}
		return proxy.Fault{}
	}
}

// onPuts limits a fault to puts.
func onPuts(decide func(proxy.Request) proxy.Fault) func(proxy.Request) proxy.Fault {
	return func(r proxy.Request) proxy.Fault {
		if r.Op == "put" {
			return decide(r)
		}
		return proxy.Fault{}
	}
}

// anyOf gives each request a chance of one of all faults.
func anyOf(r proxy.Request) proxy.Fault {
	decide := slices.Collect(maps.Values(faults))
	return decide[rand.IntN(len(decide))](r)
}

// TestFaults: whichever requests fail, no holder is in together with an exclusive one, the
// lock can still be acquired, and its remaining objects expire.
func TestFaults(t *testing.T) {
	// Beside no other test: others depend on time, and these keep the machine busy.
	for _, k := range kinds {
		for name, decide := range faults {
			t.Run(k.name+", "+name, func(t *testing.T) { badDay(t, k, decide) })
		}
		t.Run(k.name+", any of them", func(t *testing.T) { badDay(t, k, anyOf) })
	}
}

func badDay(t *testing.T, k kind, decide func(proxy.Request) proxy.Fault) {
	t.Parallel()
	at := k.on(k.shared(t))
	p := proxied(t, at, proxy.Behaviour{Decide: decide})
	r := newReferee(t)
	crowd(t, r, newLockers(t, 3, newLocker, at.through(p)), time.Now().Add(40*time.Second))
	log := p.Take()
	t.Logf("%v; %d requests", r, len(log))
	if r.grants[replock.Shared]+r.grants[replock.Exclusive] == 0 {
		t.Error("no client ever got in")
	}

	p.Settle()
	freesItself(t, at)
}

// freesItself checks that the lock is free once its holders are gone and no request is under
// way. Within a ttl its remaining objects no longer make a later acquirer fail.
func freesItself(t *testing.T, at place) {
	t.Helper()
	orphans, start := len(at.left()), time.Now()
	l := newLocker(t, at.repo())
	var k *replock.Lock
	for {
		began := time.Now()
		var err error
		if k, err = l.Exclusive(t.Context(), "prune"); err == nil {
			break
		}
		if errors.Is(err, replock.ErrHeld) && began.Sub(start) > ttl+5*time.Second || time.Since(start) > hang {
			t.Fatalf("after %v: %v; there are %q", began.Sub(start), err, at.left())
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("%d objects were left, and out of the way after %v", orphans, time.Since(start).Round(100*time.Millisecond))
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if left := at.left(); len(left) > 0 {
		t.Errorf("left over: %q", left)
	}
}

// referee checks that no holder is in together with an exclusive one.
type referee struct {
	t      *testing.T
	mu     sync.Mutex
	in     map[*replock.Lock]bool
	grants map[replock.Mode]int
	lost   int
}

func newReferee(t *testing.T) *referee {
	return &referee{t: t, in: map[*replock.Lock]bool{}, grants: map[replock.Mode]int{}}
}

func (r *referee) enter(k *replock.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.grants[k.Mode()]++
	r.in[k] = true
	for other := range r.in {
		exclusive := other.Mode() == replock.Exclusive || k.Mode() == replock.Exclusive
		if other != k && exclusive && other.Context().Err() == nil && k.Context().Err() == nil {
			r.t.Errorf("%s %s and %s %s are both in", k.Mode(), k.ID(), other.Mode(), other.ID())
		}
	}
}

// granted reports whether any lock was granted.
func (r *referee) granted() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.grants) > 0
}

func (r *referee) leave(k *replock.Lock) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if k.Context().Err() != nil {
		r.lost++
	}
	delete(r.in, k)
}

func (r *referee) String() string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return fmt.Sprintf("granted %d shared, %d exclusive, of which %d were lost", r.grants[replock.Shared], r.grants[replock.Exclusive], r.lost)
}

// take takes the lock in a mode.
func take(ctx context.Context, l *replock.Locker, mode replock.Mode) (*replock.Lock, error) {
	if mode == replock.Shared {
		return l.Shared(ctx, "backup")
	}
	return l.Exclusive(ctx, "prune")
}

// crowd makes clients take locks at random until a time, and longer if none has got one by
// then. They hold a lock mostly for a moment, sometimes past a refresh.
func crowd(t *testing.T, r *referee, clients []*replock.Locker, until time.Time) {
	var wg sync.WaitGroup
	for _, l := range clients {
		wg.Go(func() {
			for time.Now().Before(until) || !r.granted() && time.Now().Before(until.Add(hang)) {
				mode := replock.Shared
				if rand.IntN(2) == 0 {
					mode = replock.Exclusive
				}
				hold := rand.N(300 * time.Millisecond)
				if rand.IntN(10) == 0 {
					hold += ttl
				}
				turn(t.Context(), r, l, mode, hold)
				time.Sleep(rand.N(2 * time.Second))
			}
		})
	}
	wg.Wait()
}

// turn is one client's turn: it takes a lock if it can, and holds it for a while.
func turn(ctx context.Context, r *referee, l *replock.Locker, mode replock.Mode, hold time.Duration) {
	k, err := take(ctx, l, mode)
	if err != nil {
		return
	}
	r.enter(k)
	select {
	case <-k.Context().Done():
	case <-time.After(hold):
	}
	r.leave(k)
	_ = k.Release(ctx) // an object that it can't delete expires
}
