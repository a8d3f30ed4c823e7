package also

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/memory"
	"github.com/repolock/repolock/replock"
)

// call is a request to a backend, when it was sent, and of which key.
type call struct {
	what, key string
	at        time.Duration
}

// fake is a backend that a test disturbs.
type fake struct {
	*memory.Backend
	clock *leapclock.Clock

	mu    sync.Mutex
	calls []call
	// before is called with each request, and its error is the answer.
	before func(what, key string) error
	slow   time.Duration // how long TryLock, Resume and Release take, if their context doesn't end
}

// inBubble runs a test in simulated time, with a fake on its clock. Locks that are held when the test
// ends, or fails, are lost with the next renewal: else they would outlive the bubble.
func inBubble(t *testing.T, test func(t *testing.T, f *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c := leapclock.New()
		f := &fake{Backend: memory.New(c), clock: c}
		defer time.Sleep(time.Minute)
		defer f.disturb(func(string, string) error { return locking.ErrLost })
		test(t, f)
	})
}

// dawdle returns why it ended early.
func (f *fake) dawdle(ctx context.Context) error { return clock.Sleep(ctx, f.clock, f.slow) }

func (f *fake) ask(what, key string) error {
	f.mu.Lock()
	f.calls = append(f.calls, call{what, key, f.clock.Elapsed()})
	before := f.before
	f.mu.Unlock()
	if before == nil {
		return nil
	}
	return before(what, key)
}

// disturb replaces before.
func (f *fake) disturb(before func(what, key string) error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.before = before
}

// failing is a before that has one answer to requests of a kind for these keys, or for all if
// there are none.
func failing(kind, keys string, err error) func(what, key string) error {
	return func(what, key string) error {
		if what == kind && (keys == "" || strings.Contains(keys, key)) {
			return err
		}
		return nil
	}
}

// asked returns the requests of a kind.
func (f *fake) asked(what string) (found []call) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(f.calls), func(c call) bool { return c.what != what })
}

// keys returns the keys of the requests of a kind, in their order.
func (f *fake) keys(what string) (all string) {
	for _, c := range f.asked(what) {
		all += c.key
	}
	return all
}

func (f *fake) TryLock(ctx context.Context, key string, ttl time.Duration) (locking.Handle, bool, error) {
	if err := cmp.Or(f.ask("try", key), f.dawdle(ctx)); err != nil {
		return locking.Handle{}, false, err
	}
	return f.Backend.TryLock(ctx, key, ttl)
}

func (f *fake) Renew(ctx context.Context, h locking.Handle) error {
	if err := f.ask("renew", h.Key()); err != nil {
		return err
	}
	return f.Backend.Renew(ctx, h)
}

func (f *fake) Release(ctx context.Context, h locking.Handle) error {
	if err := cmp.Or(f.ask("release", h.Key()), f.dawdle(ctx)); err != nil {
		return err
	}
	return f.Backend.Release(ctx, h)
}

// free reports whether the locks of all these keys are free.
func (f *fake) free(t *testing.T, keys string) bool {
	t.Helper()
	return !slices.ContainsFunc(strings.Split(keys, ""), func(key string) bool {
		info, err := f.Inspect(context.Background(), key)
		assert.OK(t, err)
		return info != nil
	})
}

// breakLock removes a key's lock, whose holder doesn't know.
func (f *fake) breakLock(t *testing.T, key string) {
	t.Helper()
	info, err := f.Inspect(context.Background(), key)
	assert.Need(t, err == nil && info != nil, "%v, %v", info, err)
	done, err := f.Break(context.Background(), info, false)
	assert.Need(t, done && err == nil, "%t, %v", done, err)
}

// take holds a key's lock as another program does.
func (f *fake) take(t *testing.T, key string, ttl time.Duration) locking.Handle {
	t.Helper()
	h, ok, err := f.Backend.TryLock(context.Background(), key, ttl)
	assert.Need(t, ok && err == nil, "%t, %v", ok, err)
	return h
}

// resumable is a fake whose locks can be resumed.
type resumable struct{ *fake }

func (r resumable) Resume(ctx context.Context, h locking.Handle) error {
	if err := cmp.Or(r.ask("resume", h.Key()), r.dawdle(ctx)); err != nil {
		return err
	}
	return r.Backend.Renew(ctx, h)
}

// record collects events.
type record struct {
	mu  sync.Mutex
	all []events.Event
}

func (r *record) observe(e events.Event) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, e)
}

// of returns the events of a kind.
func (r *record) of(kind replock.EventKind) []events.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.all), func(e events.Event) bool { return e.Kind != kind })
}

// kinds returns the kinds of all events, except of renewals.
func (r *record) kinds() (kinds []replock.EventKind) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, e := range r.all {
		if e.Kind != replock.EventRefreshed {
			kinds = append(kinds, e.Kind)
		}
	}
	return kinds
}

// other returns the acquirer of a key, with a ttl of a minute. The lock of a key in upper case can
// be resumed.
func (f *fake) other(key string) *other {
	o := newOther(target(key), Request{TTL: time.Minute, Look: time.Minute, Operation: "test"})
	o.Backend, o.Key, o.clock = f, key, f.clock
	if key < "a" {
		o.Backend = resumable{f}
	}
	return o
}

func target(key string) Target { return Target{Place: session.Place{URL: "fake:" + key, Name: key}} }

// tries acquires a key, and ignores the events.
func (f *fake) tries(ctx context.Context, key string, wait time.Duration) (*lease.Lease, error) {
	return f.other(key).acquire(ctx, wait, (&record{}).observe)
}

// acquired acquires a key.
func acquired(t *testing.T, o *other) (*lease.Lease, *record) {
	t.Helper()
	r := &record{}
	lock, err := o.acquire(t.Context(), 0, r.observe)
	assert.OK(t, err)
	return lock, r
}

// set returns a set of keys, in this order.
func (f *fake) set(wait time.Duration, keys string) *Set {
	s := &Set{wait: wait, look: time.Minute, clock: f.clock}
	for key := range strings.SplitSeq(keys, "") {
		s.members = append(s.members, f.other(key))
	}
	return s
}

// holds returns a set that is held.
func (f *fake) holds(t *testing.T, keys string) (*lease.Set, *record) {
	t.Helper()
	r := &record{}
	l, err := f.set(0, keys).Acquire(t.Context(), r.observe)
	assert.OK(t, err)
	return l, r
}
