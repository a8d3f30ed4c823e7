package replock

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store/memory"
)

// copied takes a snapshot of a holder's machine while it runs. The function continues it: the same process, whose clocks
// have missed the time since.
func (w *world) copied(a *machine, k *Lock) func() *Lock {
	held := k.lease.Owner().(*term)
	flag, pointer := held.objects()
	t := &attempt{
		mode: held.t.mode, operation: held.t.operation, id: held.t.id, body: held.t.body, place: held.t.place,
		ownAttempts: held.t.ownAttempts.copy(), trips: new(trips), flag: flag, pointer: pointer, sent: held.sent(), deadline: held.end(), parent: context.Background(),
	}
	t.seen, t.page, t.st, t.dated = held.Seen(), held.t.page, held.t.st, held.t.dated
	seq := held.seq.Load()
	taken := time.Now()
	return func() *Lock {
		missed := time.Since(taken)
		c := w.machine(func(o *Options) { o.TTL, o.Look = a.opts.TTL, a.opts.Look })
		a.clock.mu.Lock()
		c.clock = &machineClock{start: a.clock.start.Add(missed), skew: a.clock.skew - missed}
		a.clock.mu.Unlock()
		c.opts.Clock, c.self = c.clock, a.self
		next := c.hold(t)
		next.seq.Store(seq)
		return &Lock{lease: lease.Hold(next)}
	}
}

func (m ownAttempts) copy() ownAttempts {
	m.ids, m.keys = maps.Clone(m.ids), maps.Clone(m.keys)
	m.bodies.mu.Lock()
	defer m.bodies.mu.Unlock()
	m.bodies = &sentBodies{at: maps.Clone(m.bodies.at), order: append([]mark(nil), m.bodies.order...)}
	return m
}

// rewrites is a refresh of an object by a copy of its owner.
func (w *world) rewrites(key string) (body []byte) {
	raw, _, err := w.mem.Get(context.Background(), key, wire.MaxBody)
	assert.OK(w.t, err)
	fields := map[string]any{}
	assert.OK(w.t, json.Unmarshal(raw, &fields))
	fields["seq"], fields["nonce"], fields["refreshed_boot_ns"], fields["state"] = 7, "00000000000000ff", int64(100*24*time.Hour), "held"
	body, err = json.Marshal(fields)
	assert.OK(w.t, err)
	w.put(key, body)
	return body
}

// keeps fails unless the store has these bodies.
func (w *world) keeps(bodies map[string][]byte) {
	w.t.Helper()
	for key, want := range bodies {
		w.has(key, want)
	}
}

const anotherContinues = "another process continues with this lock: was this machine cloned or restored?"

// TestCopiedHolder: if a machine is cloned while it holds a lock, at most one of the two processes holds it once one
// has refreshed it and the other has looked. The other's loss is definite, and has words of its own. Its release leaves
// the objects to the first.
func TestCopiedHolder(t *testing.T) {
	stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
		time.Sleep(5 * time.Second)
		both := []*Lock{k, w.copied(a, k)()}
		time.Sleep(a.opts.TTL/2 + DefaultLook)
		assert.That(t, !alive(both[0]) || !alive(both[1]), "two hold the lock")
		for _, k := range both {
			if lost := whyLost(k); lost != nil {
				assert.That(t, lost.Definite && lost.Copied, "definite %t, copied %t", lost.Definite, lost.Copied)
				assert.Says(t, lost, ErrLost, anotherContinues)
				mustNotResume(t, k)
				mustRelease(t, k)
			}
		}
		time.Sleep(5 * time.Minute)
		for _, k := range both {
			if whyLost(k) == nil {
				lives(t, k)
				w.leavesNothing(k)
			}
		}
	})
}

// TestRestoredHolder: a copy that continues later notices at its first look that the lock was refreshed since, or is
// another's. It never has more than its own lease, whatever date a body has.
func TestRestoredHolder(t *testing.T) {
	for _, later := range []time.Duration{40 * time.Second, 10 * time.Minute, time.Hour} {
		for _, passed := range yesNo {
			stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
				time.Sleep(5 * time.Second)
				restore := w.copied(a, k)
				if passed {
					mustRelease(t, k)
					k = w.machine().takes(t, Exclusive)
				}
				time.Sleep(later)
				restored := restore()
				assert.That(t, restored.Left() <= a.opts.TTL, "it has %v left", restored.Left())
				lost := endsForGood(t, restored, DefaultLook)
				equal(t, "copied", lost.Copied, !passed || k.Mode() == Exclusive && lost.Key == "")
				mustRelease(t, restored)
				time.Sleep(time.Minute)
				lives(t, k)
				w.leavesNothing(k)
			})
		}
	}
}

// TestBodiesDateNoLease: a body with our id that we haven't sent is a copy's, whichever object has it. Its date doesn't
// count, not even for a moment.
func TestBodiesDateNoLease(t *testing.T) {
	for name, asks := range map[string]func(*Lock) error{
		"look": func(k *Lock) error { return k.Check(context.Background()) }, "refresh": func(k *Lock) error { return k.Refresh(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			stores.objects(t, func(t *testing.T, w *world, a *machine, k *Lock, key string) {
				time.Sleep(3 * time.Second)
				stored := w.rewrites(key)
				isAll(t, asks(k), ErrLost)
				lost := whyLost(k)
				assert.That(t, lost.Definite && lost.Copied && lost.Key == key && k.Left() == 0, "definite %t, copied %t: %v; %v left", lost.Definite, lost.Copied, lost, k.Left())
				mustRelease(t, k)
				w.keeps(map[string][]byte{key: stored})
				assert.That(t, slices.Contains(w.keys(), k.Key()), "the copy has no flag any more")
			})
		})
	}
}

// TestCopiedRelease: a release doesn't delete the lock.exclusive of a copy.
func TestCopiedRelease(t *testing.T) {
	stores.each(t, func(t *testing.T, w *world) {
		_, k := w.holder(t, Exclusive)
		time.Sleep(3 * time.Second)
		stored := w.rewrites(pointer)
		mustRelease(t, k)
		w.keeps(map[string][]byte{pointer: stored})
	})
}

// TestNonces: no two puts of a lock have the same body, except one that is sent again.
func TestNonces(t *testing.T) {
	stores.modes(t, func(t *testing.T, w *world, mode Mode) {
		a, seen := w.machine(), notes[string]{}
		a.hooks.Before(on("put", "", func(r hookstore.Request) {
			if l, err := wire.Decode(r.Body); err == nil {
				seen.add(l.Nonce + " " + r.Key)
			}
		}))
		a.takes(t, mode)
		time.Sleep(2 * time.Minute)
		of := map[string]string{}
		for _, s := range seen.got() {
			nonce, key, _ := strings.Cut(s, " ")
			assert.That(t, len(nonce) == 16 && (of[nonce] == "" || of[nonce] == key), "nonce %q of %s and %s", nonce, key, of[nonce])
			of[nonce] = key
		}
		assert.That(t, len(of) >= 4, "%d nonces", len(of))
	})
}

// TestCopiedAcquirer: an acquirer that finds an object of its attempt as it never wrote it leaves the objects to the
// copy, and begins another attempt, for which they are another's.
func TestCopiedAcquirer(t *testing.T) {
	for _, key := range []string{"lock.shared/", "lock.intent/", pointer} {
		stores.each(t, func(t *testing.T, w *world) {
			a, mode := w.machine(), Exclusive
			if key == "lock.shared/" {
				mode = Shared
			}
			copies := map[string][]byte{}
			a.hooks.Before(on("list", allLocks, func(hookstore.Request) {
				for _, stored := range w.keys() {
					if len(copies) == 0 && strings.Contains(stored, key) {
						copies[stored] = w.rewrites(stored)
					}
				}
			}))
			k, err := a.lock(t.Context(), mode, "x")
			if mode == Shared {
				mustLock(t, k, err)
				assert.That(t, copies[k.Key()] == nil, "the copy's flag holds the lock")
				mustRelease(t, k)
			} else {
				mustHeld(t, k, err)
			}
			equal(t, "rewritten", len(copies), 1)
			w.keeps(copies)
			for _, body := range copies {
				l, err := wire.Decode(body)
				assert.OK(t, err)
				assert.That(t, slices.ContainsFunc(w.keys(), func(key string) bool { return strings.HasSuffix(key, l.ID) }), "the copy has no flag any more")
			}
		})
	}
}

// TestEarlierAttemptOfACopy: the flag of an earlier attempt is ours only with a body that we have sent.
func TestEarlierAttemptOfACopy(t *testing.T) {
	for _, copied := range yesNo {
		stores.modes(t, func(t *testing.T, w *world, mode Mode) {
			a := w.machine()
			first := a.try(mode)
			assert.OK(t, a.raise(t.Context(), first))
			if copied {
				w.rewrites(first.flag.key)
			}
			second, err := a.newAttempt(mode, "x", first.ownAttempts)
			assert.OK(t, err)
			assert.OK(t, a.raise(t.Context(), second))
			f, err := a.look(t.Context(), second, verdict.Memory{})
			assert.OK(t, err)
			if mode == Exclusive {
				equal(t, "conflicts", len(f.Live) > 0, copied)
			}
		})
	}
}

// TestCopiedResume: the old flag proves that no acquirer has passed only if its last refresh was ours. And a lost lock's
// release leaves a flag that a copy has refreshed.
func TestCopiedResume(t *testing.T) {
	for _, resumes := range yesNo {
		stores.holders(t, func(t *testing.T, w *world, a *machine, k *Lock) {
			key := k.Key()
			time.Sleep(20 * time.Second)
			a.hooks.Before(outage)
			stored := w.rewrites(key)
			<-k.Context().Done()
			a.hooks.Before(nil)
			if resumes {
				lost, ok := errors.AsType[*LostError](k.Resume(t.Context()))
				assert.That(t, ok && lost.Definite && (lost.Copied || w.clockless), "%v", lost)
			}
			mustRelease(t, k)
			w.keeps(map[string][]byte{key: stored})
		})
	}
}

// TestCopiesCountFences: two copies of one acquirer don't take one number for both.
func TestCopiesCountFences(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		a.hooks.Before(first("get", "lock-fence", func(r hookstore.Request) error {
			keys := w.keys()
			w.put(r.Key, fmt.Appendf(nil, `{"fence":4,"id":%q,"nonce":"0"}`, keys[len(keys)-1][len(keys[len(keys)-1])-32:]))
			return nil
		}))
		got, _ := a.takes(t, Exclusive, WithFencingToken()).FencingToken()
		equal(t, "fence", got, 5)
	})
}

// TestSentBodiesAreBounded: the oldest body is forgotten first, which makes its object another's.
func TestSentBodiesAreBounded(t *testing.T) {
	s := nothingYet().bodies
	for n := range maxSent + 1 {
		s.note(bodyMark("k", fmt.Append(nil, n)), time.Duration(n))
		s.note(bodyMark("k", fmt.Append(nil, n)), time.Hour)
	}
	_, first := s.find(bodyMark("k", fmt.Append(nil, 0)))
	sent, last := s.find(bodyMark("k", fmt.Append(nil, maxSent)))
	_, elsewhere := s.find(bodyMark("l", fmt.Append(nil, maxSent)))
	assert.That(t, !first && last && sent == maxSent && !elsewhere && len(s.order) == maxSent && len(s.at) == maxSent,
		"the first is known: %t, the last: %t, sent %v, under another key: %t; %d and %d are kept", first, last, sent, elsewhere, len(s.order), len(s.at))
}

// TestIdsDifferWithEqualRandomness: two copies with the same random numbers never choose one id or nonce and time.
func TestIdsDifferWithEqualRandomness(t *testing.T) {
	bubble(t, memory.Options{}, func(t *testing.T, w *world) {
		a := w.machine()
		a.rand = zeros{}
		one, err := a.newID()
		assert.OK(t, err)
		time.Sleep(time.Nanosecond)
		two, err := a.newID()
		assert.OK(t, err)
		assert.That(t, one != two && len(one) == 32, "%s, %s", one, two)
	})
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }
