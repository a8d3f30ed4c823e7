package replock

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// answer is what happens to one put of the flag.
type answer int

const (
	heeded      answer = iota // the store heeds the condition, and answers
	ignored                   // it writes whatever the condition, and answers
	lost                      // it heeds the condition, and its answer is lost
	dropped                   // the request is lost
	late                      // the client gives up, and the store heeds the condition half a minute later
	conflict                  // refused for now, as with 409, 429 or 503
	unsupported               // 501
	forbidden                 // 403
	answers
)

func (a answer) String() string {
	return [...]string{"heeded", "ignored", "lost", "dropped", "late", "409", "501", "403"}[a]
}

// put applies the put in that way, and returns what the client is told.
func (a answer) put(ctx context.Context, s store.Store, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	unanswered := errors.New("no answer")
	switch a {
	case ignored:
		return s.Put(ctx, key, body, store.PutOptions{})
	case lost:
		_, _ = s.Put(ctx, key, body, opts)
		return store.Object{}, unanswered
	case late:
		time.AfterFunc(30*time.Second, func() { _, _ = s.Put(context.Background(), key, body, opts) })
		return store.Object{}, unanswered
	case dropped, conflict:
		return store.Object{}, unanswered
	case unsupported:
		return store.Object{}, store.ErrConditionUnsupported
	case forbidden:
		return store.Object{}, store.ErrPermission
	default:
		return s.Put(ctx, key, body, opts)
	}
}

// proving answers the first puts of an intent: two with If-None-Match, and one without a condition, if
// that is sent.
type proving struct {
	store.Store
	mu    sync.Mutex
	plain []answer
	other []answer // of the two with If-None-Match
	turn  func() time.Duration
}

func (p *proving) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	p.mu.Lock()
	left := &p.plain
	if opts.IfAbsent {
		left = &p.other
	}
	if !strings.Contains(key, "/lock.intent/") || len(*left) == 0 {
		p.mu.Unlock()
		return p.Store.Put(ctx, key, body, opts)
	}
	how, pause := (*left)[0], p.turn()
	*left = (*left)[1:]
	p.mu.Unlock()
	time.Sleep(pause)
	return how.put(ctx, p.Store, key, body, opts)
}

// TestProofByTwoPuts: whatever becomes of the three puts of a proof, in whatever order the store
// applies them, If-None-Match is relied on only if the server was seen to refuse one of the two
// that have it, and not to take both. Only then lock.exclusive is put before a look. The lock is
// acquired in any case.
func TestProofByTwoPuts(t *testing.T) {
	for a := range answers {
		for b := range answers {
			for _, plain := range []answer{heeded, lost, dropped, late, conflict} {
				for range 3 {
					proveByTwo(t, 20*time.Millisecond, plain, a, b)
				}
				proveByTwo(t, 0, plain, a, b) // each is answered before the next is sent
			}
		}
	}
}

func proveByTwo(t *testing.T, most time.Duration, plain, a, b answer) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, mem.Options{IfAbsent: mem.Claimed})
		m := w.machine()
		m.hooks.Store = &proving{Store: w.mem, plain: []answer{plain}, other: []answer{a, b}, turn: func() time.Duration { return m.jitter(most) }}
		absent := &m.conditions.absent
		var looked atomic.Bool
		m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" {
				looked.Store(true)
			}
			if r.Op == "put" && r.Key == pointer && !looked.Load() && !absent.holds() {
				t.Errorf("plain %s, %s and %s: lock.exclusive is put before a look", plain, a, b)
			}
			return nil
		})
		k, err := m.Exclusive(t.Context(), "prune")
		mustLock(t, k, err)
		switch {
		case a == unsupported || b == unsupported:
			if !absent.fails() {
				t.Errorf("plain %s, %s and %s: a condition that isn't supported isn't refuted", plain, a, b)
			}
		case a == heeded && b == heeded:
			if !absent.holds() {
				t.Errorf("plain %s: it heeds the condition, and that isn't proven", plain)
			}
		case a != heeded && b != heeded && absent.holds():
			t.Errorf("plain %s, %s and %s: nothing was refused, and the condition counts as proven", plain, a, b)
		case a == ignored && b == ignored && !absent.fails():
			t.Errorf("plain %s: both were taken, and the condition isn't refuted", plain)
		}
		other, err := w.machine().Shared(t.Context(), "backup")
		mustHeld(t, other, err)
		time.Sleep(time.Minute) // what comes late has come
		if err := errors.Join(k.Check(t.Context()), k.Release(t.Context())); err != nil {
			t.Errorf("plain %s, %s and %s: %v", plain, a, b, err)
		}
		w.empty()
	})
}

// TestPutsOfAProofAreApart: no put of a proof meets one before at a server that answers soon, and one
// that is far away gets all of them within one round trip. A put that isn't needed isn't sent.
func TestPutsOfAProofAreApart(t *testing.T) {
	for _, c := range []struct {
		trip time.Duration
		want []time.Duration
	}{
		{time.Millisecond, []time.Duration{0, time.Millisecond}},
		{160 * time.Millisecond, []time.Duration{0, apart, 2 * apart}},
	} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{IfAbsent: mem.Claimed})
			m := w.machine()
			var mu sync.Mutex
			var sent []time.Duration
			began := time.Now()
			m.hooks.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "put" && strings.Contains(r.Key, "/lock.intent/") {
					mu.Lock()
					sent = append(sent, time.Since(began))
					mu.Unlock()
				}
				time.Sleep(c.trip)
				return nil
			})
			k, err := m.Exclusive(t.Context(), "prune")
			mustLock(t, k, err)
			if !slices.Equal(sent, c.want) || !m.conditions.absent.holds() {
				t.Errorf("%v: sent at %v, want %v", c.trip, sent, c.want)
			}
			k.Release(t.Context())
		})
	}
}
