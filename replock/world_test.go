package replock

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/stoppedclock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// world is a store and the machines that share it, in a synctest bubble. The bubble's time is
// the true time; each machine and the store have clocks of their own that can be wrong.
type world struct {
	t     *testing.T
	skew  atomic.Int64 // of the store's clock, in nanoseconds
	mem   *mem.Store
	count int
	// clockless: the store has no clock that can be relied on
	clockless bool
}

func newWorld(t *testing.T, opts mem.Options) *world {
	w := &world{t: t, clockless: opts.NoStoreClock}
	opts.Now = func() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }
	w.mem = mem.New(opts)
	t.Cleanup(func() { time.Sleep(time.Minute) }) // a bubble ends with the requests that are under way
	return w
}

// machine is a client with its own clock and its own way to the store.
type machine struct {
	*Locker
	clock *machineClock
	hooks *hookstore.Store
	mu    sync.Mutex
	seen  []Event
}

func (w *world) machine(change ...func(*Options)) *machine {
	w.count++
	m := &machine{clock: &machineClock{start: time.Now().Add(-time.Duration(w.count) * time.Hour)}}
	m.hooks = &hookstore.Store{Store: w.mem}
	opts := Options{Clock: m.clock, Rand: rand.Reader, Observe: m.observe, Self: &Process{
		Hostname: fmt.Sprintf("m%d", w.count), HostID: fmt.Sprint("host", w.count), BootID: fmt.Sprint("boot", w.count),
		PID: 100 + w.count, PIDNamespace: "pid:[1]", TimeNamespace: "time:[1]", PIDStart: 1, User: "u",
	}}
	for _, f := range change {
		f(&opts)
	}
	l, err := New(m.hooks, opts)
	if err != nil {
		w.t.Fatal(err)
	}
	l.earlier = func(time.Duration) time.Duration { return 0 }
	m.Locker = l
	return m
}

// process is another process on the machine.
func (w *world) process(m *machine) *machine {
	p := w.machine(func(o *Options) { o.Clock = m.clock })
	p.clock = m.clock
	pid := p.self.PID
	p.self = m.self
	p.self.PID = pid
	return p
}

func (m *machine) observe(e Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.seen = append(m.seen, e)
}

func (m *machine) saw(kind EventKind) (n int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, e := range m.seen {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// machineClock runs with the bubble's time. Its timers stand still while the machine is
// suspended, and its wall clock can be wrong.
type machineClock struct {
	mu    sync.Mutex
	start time.Time
	skew  time.Duration
	stoppedclock.Stops
	paused stoppedclock.Stops
}

func (c *machineClock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	stopped, _ := c.paused.Stopped(c.start)
	return time.Now().Add(c.skew - stopped)
}

// pause is a hypervisor's pause: nothing runs, and no clock of the machine counts it.
func (c *machineClock) pause(d time.Duration) {
	c.Stop(d)
	c.paused.Stop(d)
}

func (c *machineClock) setSkew(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.skew = d
}

func (c *machineClock) Elapsed() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	stopped, _ := c.paused.Stopped(c.start)
	return time.Since(c.start) - stopped
}

// jump lets time pass for this machine alone.
func (c *machineClock) jump(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.start = c.start.Add(-d)
}

// After fires once the machine has been awake for d.
func (c *machineClock) After(d time.Duration) <-chan time.Time {
	return c.Stops.After(d, func(time.Duration) time.Duration { return 0 })
}

// empty fails if the store has any object.
func (w *world) empty() {
	w.t.Helper()
	if keys := w.keys(); len(keys) > 0 {
		w.t.Errorf("left over: %v", keys)
	}
}

// keys lists the store as it is.
func (w *world) keys() []string {
	w.t.Helper()
	keys, err := store.Keys(context.Background(), w.mem, "")
	if err != nil {
		w.t.Fatal(err)
	}
	return keys
}

func (w *world) delete(key string) {
	w.t.Helper()
	if err := w.mem.Delete(context.Background(), key); err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) put(key string, body []byte) {
	w.t.Helper()
	if _, err := w.mem.Put(context.Background(), key, body, store.PutOptions{}); err != nil {
		w.t.Fatal(err)
	}
}

// takes acquires a lock, which is released when the test ends, if not before.
func (m *machine) takes(t *testing.T, mode Mode, opts ...AcquireOption) *Lock {
	t.Helper()
	k, err := m.acquire(t.Context(), mode, "x", opts...)
	mustLock(t, k, err)
	t.Cleanup(func() {
		m.hooks.Before(nil)
		m.hooks.After(nil)
		k.Release(context.Background())
	})
	return k
}

// refused is an acquire that finds another lock in its way.
func (m *machine) refused(t *testing.T, mode Mode, opts ...AcquireOption) *HeldError {
	t.Helper()
	k, err := m.acquire(t.Context(), mode, "x", opts...)
	return mustHeld(t, k, err)
}

// mustLock and the like fail the test if the error isn't the expected one.
func mustLock(t *testing.T, k *Lock, err error) *Lock {
	t.Helper()
	if err != nil {
		t.Fatalf("not acquired: %v", err)
	}
	return k
}

func mustRelease(t *testing.T, k *Lock) {
	t.Helper()
	if err := k.Release(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func mustResume(t *testing.T, k *Lock) *Lock {
	t.Helper()
	r, err := k.Resume(t.Context())
	mustLock(t, r, err)
	t.Cleanup(func() { r.Release(context.Background()) })
	return r
}

// untilFree tries again and again until it gets the exclusive lock, and releases it.
func (m *machine) untilFree(t *testing.T, pause time.Duration) {
	t.Helper()
	m.untilFreeFor(t, Exclusive, pause)
}

func (m *machine) untilFreeFor(t *testing.T, mode Mode, pause time.Duration) {
	t.Helper()
	for {
		k, err := m.acquire(t.Context(), mode, "prune")
		if err == nil {
			k.Release(t.Context())
			return
		}
		mustHeld(t, k, err)
		time.Sleep(pause)
	}
}

func mustHeld(t *testing.T, k *Lock, err error) *HeldError {
	t.Helper()
	if k != nil {
		t.Fatalf("acquired a lock that is held")
	}
	held, ok := err.(*HeldError)
	if !ok {
		t.Fatalf("error is %v, not a *HeldError", err)
	}
	return held
}

func alive(k *Lock) bool { return k.Context().Err() == nil }

// bubble runs f in a bubble with a store, do with a good one, and sub as a test with a name.
func bubble(t *testing.T, opts mem.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, opts)) })
}

func do(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	bubble(t, mem.Options{}, f)
}

func sub(t *testing.T, name string, opts mem.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, opts, f) })
}

// bothModes runs a test with each mode, eachMode also on each kind of store.
func bothModes(t *testing.T, opts mem.Options, f func(t *testing.T, w *world, mode Mode)) {
	t.Helper()
	for _, mode := range []Mode{Shared, Exclusive} {
		sub(t, mode.String(), opts, func(t *testing.T, w *world) { f(t, w, mode) })
	}
}

func eachMode(t *testing.T, f func(t *testing.T, w *world, mode Mode)) {
	for name, opts := range map[string]mem.Options{
		"kept": {}, "lacked": lacking, "ignored": ignoring, "claimed": claiming,
		"second":    {Precision: time.Second, NoTime: true},
		"clockless": {NoStoreClock: true},
	} {
		t.Run(name, func(t *testing.T) { bothModes(t, opts, f) })
	}
}

// Stores that lack conditional puts, ignore the conditions, or only claim to keep them.
var (
	lacking  = mem.Options{IfAbsent: mem.Lacked, IfMatch: mem.Lacked}
	ignoring = mem.Options{IfAbsent: mem.Ignored, IfMatch: mem.Ignored}
	claiming = mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed}
)

// fails answers each request of a kind with an error.
func fails(op, key string, err error) hookstore.Before {
	return func(_ context.Context, r hookstore.Request) error {
		if strings.HasPrefix(r.Op, op) && strings.Contains(r.Key, key) {
			return err
		}
		return nil
	}
}

// first runs f at the first request of a kind.
func first(op, key string, f func(r hookstore.Request) error) func(context.Context, hookstore.Request) error {
	var done atomic.Bool
	return func(_ context.Context, r hookstore.Request) error {
		if r.Op == op && strings.Contains(r.Key, key) && done.CompareAndSwap(false, true) {
			return f(r)
		}
		return nil
	}
}
