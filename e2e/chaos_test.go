//go:build unix && minio

package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/plainstore"
	"github.com/repolock/repolock/internal/test/proxy"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/replock"
)

// noEnd is a limit for a phase. Only a hang reaches it.
const noEnd = time.Hour

// TestChaos: real processes contend for a lock and are killed, stopped past the deadline, and
// terminated. On MinIO all requests but the children's own writes pass proxies that lose,
// delay and repeat requests, cut answers off, and refuse every request for a time. Half of the
// clients see a clock that is an hour wrong. The server crashes twice. No child ever writes beside
// an exclusive one, also on B2, and on a server that ignores conditions and takes any put. The
// remaining objects expire.
func TestChaos(t *testing.T) {
	t.Run("directory", func(t *testing.T) {
		t.Parallel()
		repo := t.TempDir()
		contention(t, repo, []string{repo, repo, repo, repo, repo, repo}, 500, nil)
		phases(t, repo, []string{repo, repo, repo})
	})
	t.Run("MinIO", func(t *testing.T) {
		t.Parallel()
		server := ownMinIO(t)
		s3 := onS3.on(server)
		minio := place{onMinIO, server, s3.bucket}
		var w weather
		var clients []string
		var proxies []*proxy.Proxy
		for _, at := range []struct {
			place
			shift time.Duration
		}{{s3, 0}, {minio, time.Hour}, {minio, 0}, {s3, -time.Hour}} {
			p := proxied(t, server, proxy.Behaviour{Decide: w.decide, Shift: at.shift, Sign: root})
			clients, proxies = append(clients, at.through(p), at.through(p)), append(proxies, p)
		}
		contention(t, s3.repo(), clients, 500, &w,
			func() { crash(server, 3*time.Second) },
			func() { crash(server, ttl+5*time.Second) },
		)
		freesItself(t, s3, proxies...)
		phases(t, s3.repo(), clients)
	})
	t.Run("B2", func(t *testing.T) {
		t.Parallel()
		at := onB2.on(startB2(t))
		var w weather
		fast := proxied(t, at, proxy.Behaviour{Decide: w.decide, Shift: time.Hour})
		slow := proxied(t, at, proxy.Behaviour{Decide: w.decide, Shift: -time.Hour})
		contention(t, at.repo(), []string{at.through(fast), at.through(fast), at.through(slow)}, 100, &w)
		freesItself(t, at, fast, slow)
	})
	t.Run("no conditions", func(t *testing.T) {
		t.Parallel()
		s3 := onS3.on(onS3.shared(t))
		minio := place{onMinIO, s3.server, s3.bucket}
		p := proxied(t, s3, proxy.Behaviour{StripConditions: true, Sign: root})
		contention(t, s3.repo(), []string{s3.through(p), minio.through(p), s3.through(p), minio.through(p)}, 200, nil)
	})
}

// contention makes clients contend for a lock until this many acquisitions, each event and each fault of the
// weather have happened. After weather the remaining objects stay, for freesItself.
func contention(t *testing.T, data string, clients []string, acquisitions int, w *weather, meanwhile ...func()) {
	c := newChaos(t, data, "contention", clients...)
	c.Keep = w != nil
	c.missing = func(n torture.Counts) []string {
		events := map[string]int{
			fmt.Sprint("more than ", n.Acquisitions(), " acquisitions"): n.Acquisitions() / acquisitions,
			"exclusive": n.Exclusive, "held": n.Held, "killed": n.Killed, "stopped": n.Stopped, "terminated": n.Terminated,
		}
		if w != nil {
			maps.Copy(events, w.counts())
		}
		return zero(events)
	}
	c.run(acquisitions, meanwhile)
	c.holds()
}

// freesItself checks that the lock of a contention is free once its holders are gone and no request is under
// way. Within a ttl its remaining objects no longer make a later acquirer fail, which deletes them.
func freesItself(t *testing.T, at place, proxies ...*proxy.Proxy) {
	t.Helper()
	for _, p := range proxies {
		p.Settle()
	}
	left := func() []string {
		return slices.DeleteFunc(at.left(), func(key string) bool { return strings.Contains(key, "/data/") })
	}
	orphans, start := len(left()), time.Now()
	l := newLocker(t, at.repo(), "contention")
	var k *replock.Lock
	for {
		began := time.Now()
		var err error
		if k, err = l.TryExclusive(t.Context(), "prune"); err == nil {
			break
		}
		if errors.Is(err, replock.ErrHeld) && began.Sub(start) > ttl+5*time.Second || time.Since(start) > hang {
			t.Fatalf("after %v: %v; there are %q", began.Sub(start), err, left())
		}
		time.Sleep(200 * time.Millisecond)
	}
	t.Logf("%d objects were left, and out of the way after %v", orphans, time.Since(start).Round(100*time.Millisecond))
	assert.Is(t, k.Release(t.Context()), nil)
	assert.Equal(t, left(), nil, "left over")
}

// phases ensure what chance might not: a resumed lock, and a lost one.
func phases(t *testing.T, data string, clients []string) {
	t.Run("alone", func(t *testing.T) { // no other client can acquire the lock while it is stopped
		c := newChaos(t, data, "alone", clients[0])
		c.Chances = torture.Chances{Exclusive: 0.15, Stop: 1}
		c.missing = func(n torture.Counts) []string { return zero(map[string]int{"resumed": n.Resumed}) }
		c.run(0, nil)
		c.holds()
	})
	t.Run("overtaken", func(t *testing.T) { // another client wants the lock while one is stopped
		c := newChaos(t, data, "overtaken", clients[0], clients[1], clients[2])
		c.Chances = torture.Chances{Exclusive: 1, Stop: 0.5}
		c.missing = func(n torture.Counts) []string { return zero(map[string]int{"lost": n.Lost}) }
		c.run(0, nil)
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
	c.Chances = torture.Chances{Exclusive: 0.5, Stop: 0.3}
	c.run(0, nil)
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
	assert.OK(t, err)
	c := &chaos{t: t, data: data, lock: lock, dir: dir}
	c.Options = torture.Options{
		Prefix: "index/locks/" + lock + "/", TTL: ttl, Duration: noEnd, Chances: torture.UsualChances,
		Seed: rand.Uint64(),
	}
	for _, at := range clients {
		c.contend(at)
	}
	t.Cleanup(c.keep)
	return c
}

// contend adds a client that takes its locks at a URL.
func (c *chaos) contend(locks string) {
	c.Clients = append(c.Clients, func(w torture.Work) []string {
		return torture.Repolock{
			Program: filepath.Join(bin, "repolock"), Locks: locks, Data: c.data, Name: c.lock, TTL: ttl, Flags: c.flags,
		}.Command(w)
	})
}

// run runs until all required events have happened. It spreads meanwhile over the acquisitions.
func (c *chaos) run(acquisitions int, meanwhile []func()) {
	c.t.Helper()
	log, err := os.Create(filepath.Join(c.dir, "events.log"))
	assert.OK(c.t, err)
	defer log.Close()
	c.Log = log
	ctx, cancel := context.WithCancel(c.t.Context())
	defer cancel()
	reached := make(chan int, 1)
	c.Progress = func(n torture.Counts) {
		if len(c.lacks(n)) == 0 {
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
	assert.That(c.t, c.err == nil, "seed %d: %v", c.Seed, c.err)
	c.t.Logf("seed %d, %d acquisitions: %+v; %d changes arrived late", c.Seed, c.report.Counts.Acquisitions(), c.report.Counts, c.report.Verdict.Late)
	assert.That(c.t, len(c.report.Left) == 0 && c.report.LeftBecause == nil, "left over: %v %q", c.report.LeftBecause, c.report.Left)
}

// lacks returns what a run must still have. Without an acquisition nothing can be judged: the first client can lose its
// lock before it has told that it has it.
func (c *chaos) lacks(n torture.Counts) []string {
	return append(c.missing(n), zero(map[string]int{"acquired": n.Acquisitions()})...)
}

// holds checks that no violation was found in a run that has had every required event.
func (c *chaos) holds() {
	c.t.Helper()
	v := c.report.Verdict
	assert.That(c.t, v.Result == judge.NotFound, "%s: %s %v", v.Result, v.Why, v.Violations)
	assert.Equal(c.t, c.lacks(c.report.Counts), nil, "what didn't happen in %v", noEnd)
}

// keep keeps the evidence if there is any.
func (c *chaos) keep() {
	if !c.t.Failed() {
		_ = os.RemoveAll(c.dir)
		return
	}
	c.t.Logf("the log is in %s", c.dir)
}

// crash stops a server for a time.
func crash(s server, away time.Duration) {
	s.Kill()
	time.Sleep(away)
	s.Start()
}

// weather is the faults of a bad network and a bad store, which meet some of the requests.
type weather struct {
	mu   sync.Mutex
	had  map[string]int
	next time.Time
	// storm is the end of a time in which every request fails.
	storm time.Time
}

// spell is the quiet time after each fault, and the duration of a storm. A put that is applied late, or again,
// blocks other clients for a ttl, so that with faults all the time no client would acquire the lock.
const spell = 2 * time.Second

// faults are the faults by name. The delays are longer than a client waits for an answer, so a request is
// applied after the client gave up.
var faults = map[string]func() proxy.Fault{
	"lost answer":    func() proxy.Fault { return proxy.Fault{LoseAnswer: true} },
	"reset":          func() proxy.Fault { return proxy.Fault{Reset: true} },
	"cut off":        func() proxy.Fault { return proxy.Fault{Truncate: true} },
	"500":            func() proxy.Fault { return proxy.Fault{Status: 500, Code: "InternalError"} },
	"503":            func() proxy.Fault { return proxy.Throttled },
	"storm":          func() proxy.Fault { return proxy.Throttled },
	"429":            func() proxy.Fault { return proxy.Fault{Status: 429, Code: "TooManyRequests"} },
	"409 of a put":   func() proxy.Fault { return proxy.Fault{Status: 409, Code: "ConditionalRequestConflict"} },
	"delayed":        func() proxy.Fault { return proxy.Fault{Before: rand.N(5 * time.Second)} },
	"answered late":  func() proxy.Fault { return proxy.Fault{After: rand.N(5 * time.Second)} },
	"applied late":   func() proxy.Fault { return proxy.Fault{Late: rand.N(ttl)} },
	"applied twice":  func() proxy.Fault { return proxy.Fault{Again: rand.N(ttl)} },
	"never answered": func() proxy.Fault { return proxy.Fault{Hang: true} },
}

// decide prefers the faults that have happened least often, so that each happens soon.
func (w *weather) decide(r proxy.Request) proxy.Fault {
	w.mu.Lock()
	defer w.mu.Unlock()
	if time.Now().Before(w.storm) {
		return proxy.Throttled
	}
	name := slices.MinFunc(slices.Collect(maps.Keys(faults)), func(a, b string) int { return w.had[a] - w.had[b] })
	if time.Now().Before(w.next) || rand.IntN(4) > 0 || strings.HasSuffix(name, " put") && r.Op != "put" && r.Op != "b2_upload_file" {
		return proxy.Fault{}
	}
	w.next = time.Now().Add(spell)
	if name == "storm" {
		w.storm, w.next = w.next, w.next.Add(spell)
	}
	if w.had == nil {
		w.had = map[string]int{}
	}
	w.had[name]++
	return faults[name]()
}

// counts returns how often each fault has happened.
func (w *weather) counts() map[string]int {
	w.mu.Lock()
	defer w.mu.Unlock()
	all := map[string]int{}
	for name := range faults {
		all[name] = w.had[name]
	}
	return all
}
