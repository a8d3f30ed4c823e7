package replock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/stoppedclock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// world is a store and the machines that share it, in a synctest bubble. The bubble's time is
// the true time; each machine and the store have clocks of their own that can be wrong.
type world struct {
	t     *testing.T
	skew  atomic.Int64 // of the store's clock, in nanoseconds
	mem   *memory.Store
	count int
	// clockless: the store has no clock that can be relied on
	clockless bool
	// timeless: its pages have no time
	timeless bool
}

func newWorld(t *testing.T, opts memory.Options) *world {
	w := &world{t: t, clockless: opts.NoStoreClock, timeless: opts.NoTime || opts.NoStoreClock}
	opts.Now = func() time.Time { return time.Now().Add(time.Duration(w.skew.Load())) }
	w.mem = memory.New(opts)
	t.Cleanup(func() { time.Sleep(time.Minute) }) // a bubble ends with the requests that are under way
	return w
}

// machine is a client with its own clock and its own way to the store.
type machine struct {
	*Locker
	clock *machineClock
	hooks *hookstore.Store
	told  notes[Event]
}

func (w *world) machine(change ...func(*Options)) *machine {
	w.count++
	m := &machine{clock: &machineClock{start: time.Now().Add(-time.Duration(w.count) * time.Hour)}}
	m.hooks = &hookstore.Store{Store: w.mem}
	opts := Options{Clock: m.clock, Observe: m.told.add, Beside: BesideNobody}
	for _, f := range change {
		f(&opts)
	}
	l, err := New(m.hooks, opts)
	assert.OK(w.t, err)
	l.self = identity.Process{
		Hostname: fmt.Sprintf("m%d", w.count), HostID: fmt.Sprint("host", w.count), BootID: fmt.Sprint("boot", w.count),
		PID: 100 + w.count, PIDNamespace: "pid:[1]", TimeNamespace: "time:[1]", PIDStart: 1, User: "u",
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

// seen returns the events so far, and saw the number of one kind.
func (m *machine) seen() []Event {
	m.Flush(context.Background())
	return m.told.got()
}

func (m *machine) saw(kind EventKind) int {
	return len(slices.DeleteFunc(m.seen(), func(e Event) bool { return e.Kind != kind }))
}

// notes collects values from several goroutines.
type notes[T any] struct {
	mu  sync.Mutex
	all []T
}

func (n *notes[T]) add(v T)  { n.mu.Lock(); defer n.mu.Unlock(); n.all = append(n.all, v) }
func (n *notes[T]) got() []T { n.mu.Lock(); defer n.mu.Unlock(); return slices.Clone(n.all) }

// machineClock runs with the bubble's time, unless the machine is suspended. Its wall clock can be wrong.
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
	w.stores()
}

// stores fails unless these are the keys of the store.
func (w *world) stores(keys ...string) {
	w.t.Helper()
	got := w.keys()
	assert.That(w.t, slices.Equal(got, keys), "stored: %v, want %v", got, keys)
}

// keys lists the store as it is.
func (w *world) keys() []string {
	w.t.Helper()
	keys, err := store.Keys(context.Background(), w.mem, "")
	assert.OK(w.t, err)
	return keys
}

func (w *world) delete(key string) {
	w.t.Helper()
	assert.OK(w.t, w.mem.Delete(context.Background(), key))
}

// breakAll breaks all locks.
func (w *world) breakAll() {
	w.t.Helper()
	_, err := w.machine().Break(context.Background(), BreakOptions{})
	assert.OK(w.t, err)
}

func (w *world) put(key string, body []byte) {
	w.t.Helper()
	_, err := w.mem.Put(context.Background(), key, body, store.PutOptions{})
	assert.OK(w.t, err)
}

// takes acquires a lock, which is released when the test ends, if not before.
func (m *machine) takes(t *testing.T, mode Mode, opts ...AcquireOption) *Lock {
	t.Helper()
	k, err := m.lock(t.Context(), mode, "x", opts...)
	mustLock(t, k, err)
	t.Cleanup(func() {
		m.hooks.Before(nil)
		m.hooks.After(nil)
		k.Release(context.Background())
	})
	return k
}

// holder is a machine of its own, which takes a lock.
func (w *world) holder(t *testing.T, mode Mode, change ...func(*Options)) (*machine, *Lock) {
	t.Helper()
	m := w.machine(change...)
	return m, m.takes(t, mode)
}

// try is a try of the machine's that has sent nothing yet.
func (m *machine) try(mode Mode) *attempt {
	tr, err := m.newAttempt(mode, "x", nothingYet())
	if err != nil {
		panic(err)
	}
	return tr
}

// refused is an acquire that finds another lock in its way, and fails one that ends with another error.
func (m *machine) refused(t *testing.T, mode Mode, opts ...AcquireOption) *HeldError {
	t.Helper()
	k, err := m.lock(t.Context(), mode, "x", opts...)
	return mustHeld(t, k, err)
}

func (m *machine) fails(t *testing.T, mode Mode, want error, opts ...AcquireOption) error {
	t.Helper()
	k, err := m.lock(t.Context(), mode, "x", opts...)
	assert.That(t, k == nil && errors.Is(err, want), "acquired: %v, error %v, want %v", k != nil, err, want)
	return err
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
	assert.OK(t, k.Release(t.Context()))
}

// leavesNothing releases a lock, after which the store must be empty.
func (w *world) leavesNothing(k *Lock) {
	w.t.Helper()
	mustRelease(w.t, k)
	w.empty()
}

func mustResume(t *testing.T, k *Lock) {
	t.Helper()
	assert.OK(t, k.Resume(t.Context()))
	if !alive(k) || k.Left() == 0 || k.Lost() != nil {
		t.Fatalf("resumed, and not held: %v", k.Lost())
	}
}

// untilFree tries again and again until it gets the lock, and releases it.
func (m *machine) untilFree(t *testing.T, mode Mode, pause time.Duration) {
	t.Helper()
	for {
		k, err := m.lock(t.Context(), mode, "prune")
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

// lives fails if the lock is lost.
func lives(t *testing.T, k *Lock) {
	t.Helper()
	assert.That(t, alive(k), "lost: %v", k.Lost())
}

// ends waits for the end of the lock's context, and endsForGood for a loss that is definite.
func ends(t *testing.T, k *Lock, within time.Duration) {
	t.Helper()
	select {
	case <-k.Context().Done():
	case <-time.After(within):
		t.Errorf("still held after %v", within)
	}
}

func endsForGood(t *testing.T, k *Lock, within time.Duration) *LostError {
	t.Helper()
	ends(t, k, within)
	lost := whyLost(k)
	if lost == nil || !lost.Definite {
		t.Fatalf("lost: %v", lost)
	}
	return lost
}

// isAll fails unless the error is each of the others.
func isAll(t *testing.T, err error, wants ...error) {
	t.Helper()
	for _, want := range wants {
		assert.That(t, errors.Is(err, want), "%v: not %v", err, want)
	}
}

// equal fails unless two values are.
func equal[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	assert.That(t, got == want, "%s: %v, want %v", what, got, want)
}

// between has the least and the most number of requests of an operation.
type between map[string][2]int

const many = math.MaxInt

// sent fails unless the numbers of requests since the last count are within these bounds.
func (m *machine) sent(t *testing.T, want between) {
	t.Helper()
	_, by := m.hooks.Count()
	for op, n := range want {
		assert.That(t, by[op] >= n[0] && by[op] <= n[1], "sent %v, want %v", by, want)
	}
}

// took fails unless the time since start is from least to most.
func took(t *testing.T, start time.Time, least, most time.Duration) {
	t.Helper()
	d := time.Since(start)
	assert.That(t, d >= least && d <= most, "took %v, want %v to %v", d, least, most)
}

// bubble runs f in a bubble with a store, do with a good one, and sub as a test with a name.
func bubble(t *testing.T, opts memory.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(t, newWorld(t, opts)) })
}

func do(t *testing.T, f func(t *testing.T, w *world)) { t.Helper(); bubble(t, memory.Options{}, f) }

func sub(t *testing.T, name string, opts memory.Options, f func(t *testing.T, w *world)) {
	t.Helper()
	t.Run(name, func(t *testing.T) { bubble(t, opts, f) })
}

// each runs a test with each value, and a good store for each.
func eachOf[V any](t *testing.T, values []V, f func(t *testing.T, w *world, v V)) {
	t.Helper()
	for _, v := range values {
		do(t, func(t *testing.T, w *world) { f(t, w, v) })
	}
}

var yesNo = []bool{true, false}

// kinds are stores by their names. each runs a test with each of them, modes also with each mode, and holders
// with a holder in each mode.
type kinds map[string]memory.Options

func (k kinds) each(t *testing.T, f func(t *testing.T, w *world)) {
	t.Helper()
	for name, opts := range k {
		sub(t, name, opts, f)
	}
}

func (k kinds) modes(t *testing.T, f func(t *testing.T, w *world, mode Mode)) {
	t.Helper()
	for _, mode := range []Mode{Shared, Exclusive} {
		t.Run(mode.String(), func(t *testing.T) {
			k.each(t, func(t *testing.T, w *world) { f(t, w, mode) })
		})
	}
}

func (k kinds) holders(t *testing.T, f func(t *testing.T, w *world, m *machine, k *Lock)) {
	t.Helper()
	k.modes(t, func(t *testing.T, w *world, mode Mode) {
		m, k := w.holder(t, mode)
		f(t, w, m, k)
	})
}

// bothModes, bothHolders and holding are the same with one kind of store, and in one mode.
func bothModes(t *testing.T, opts memory.Options, f func(t *testing.T, w *world, mode Mode)) {
	t.Helper()
	kinds{"": opts}.modes(t, f)
}

func bothHolders(t *testing.T, opts memory.Options, f func(t *testing.T, w *world, m *machine, k *Lock)) {
	t.Helper()
	kinds{"": opts}.holders(t, f)
}

func holding(t *testing.T, opts memory.Options, mode Mode, f func(t *testing.T, w *world, m *machine, k *Lock)) {
	t.Helper()
	bubble(t, opts, func(t *testing.T, w *world) {
		m, k := w.holder(t, mode)
		f(t, w, m, k)
	})
}

// conflicts runs a test with each two modes that exclude each other.
func conflicts(t *testing.T, f func(t *testing.T, w *world, first, second Mode)) {
	t.Helper()
	for _, modes := range [][2]Mode{{Shared, Exclusive}, {Exclusive, Shared}, {Exclusive, Exclusive}} {
		name := fmt.Sprint(modes[0], " then ", modes[1])
		sub(t, name, memory.Options{}, func(t *testing.T, w *world) { f(t, w, modes[0], modes[1]) })
	}
}

var stores = kinds{
	"kept": {}, "lacked": lacking, "ignored": ignoring, "claimed": claiming,
	"second":    {Precision: time.Second, NoTime: true},
	"clockless": {NoStoreClock: true},
}

// threeKinds are stores that keep, claim and lack conditional puts.
var threeKinds = kinds{"kept": {}, "claimed": claiming, "none": lacking}

// Stores that lack conditional puts, ignore the conditions, only claim to keep them, or put a missing object
// with If-Match.
var (
	lacking  = memory.Options{IfAbsent: memory.Lacked, IfMatch: memory.Lacked}
	ignoring = memory.Options{IfAbsent: memory.Ignored, IfMatch: memory.Ignored}
	claiming = memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed}
	creating = memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed, IfMatchCreates: true}
)

// is reports whether a request has an operation that begins with op, and a key that contains key. A listing
// of all locks has no longer key.
func is(r hookstore.Request, op, key string) bool {
	return strings.HasPrefix(r.Op, op) && strings.Contains(r.Key, key) && (key != allLocks || r.Key == key)
}

const (
	pointer  = "index/lock.exclusive"
	allLocks = "index/lock."
)

// when runs f before each request of a kind, which fails with f's error.
func when(op, key string, f hookstore.Before) hookstore.Before {
	return func(ctx context.Context, r hookstore.Request) error {
		if is(r, op, key) {
			return f(ctx, r)
		}
		return nil
	}
}

// first runs f before the first request of a kind, which fails with f's error.
func first(op, key string, f func(r hookstore.Request) error) hookstore.Before {
	var done atomic.Bool
	return when(op, key, func(_ context.Context, r hookstore.Request) error {
		if done.CompareAndSwap(false, true) {
			return f(r)
		}
		return nil
	})
}

// on runs f before each request of a kind, fails fails each, slow delays each, slowFirst the first, and hangs
// keeps each until it is given up.
func on(op, key string, f func(r hookstore.Request)) hookstore.Before {
	return when(op, key, func(_ context.Context, r hookstore.Request) error { f(r); return nil })
}

func fails(op, key string, err error) hookstore.Before {
	return when(op, key, func(context.Context, hookstore.Request) error { return err })
}

func slow(op, key string, d time.Duration) hookstore.Before {
	return on(op, key, func(hookstore.Request) { time.Sleep(d) })
}

func slowFirst(op, key string, d time.Duration) hookstore.Before {
	return first(op, key, func(hookstore.Request) error { time.Sleep(d); return nil })
}

func hangs(op, key string) hookstore.Before {
	return when(op, key, func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return ctx.Err() })
}

// answered runs f when a request of a kind was applied, and firstAnswered when the first was.
func answered(op, key string, f func(r hookstore.Request)) hookstore.After {
	return func(_ context.Context, r hookstore.Request, err error) error {
		if is(r, op, key) {
			f(r)
		}
		return err
	}
}

func firstAnswered(op, key string, f func(r hookstore.Request)) hookstore.After {
	var done atomic.Bool
	return answered(op, key, func(r hookstore.Request) {
		if done.CompareAndSwap(false, true) {
			f(r)
		}
	})
}

// lateAnswer delays the answer to each request of a kind.
func lateAnswer(op, key string, d time.Duration) hookstore.After {
	return answered(op, key, func(hookstore.Request) { time.Sleep(d) })
}

// unanswered applies each request of a kind, and loses its answer.
func unanswered(op, key string) hookstore.After {
	return func(_ context.Context, r hookstore.Request, err error) error {
		if is(r, op, key) {
			return errOutage
		}
		return err
	}
}

// inTurn runs hooks until one fails.
func inTurn(hooks ...hookstore.Before) hookstore.Before {
	return func(ctx context.Context, r hookstore.Request) error {
		for _, f := range hooks {
			if f == nil {
				continue
			}
			if err := f(ctx, r); err != nil {
				return err
			}
		}
		return nil
	}
}

// lock tries to acquire a lock in either mode.
func (l *Locker) lock(ctx context.Context, mode Mode, operation string, opts ...AcquireOption) (*Lock, error) {
	return locked(l.acquire(ctx, mode, operation, append([]AcquireOption{WithWait(0)}, opts...)))
}

// whyLost returns the loss of a lock, or nil.
func whyLost(k *Lock) *LostError {
	lost, _ := errors.AsType[*LostError](k.Lost())
	return lost
}
