package replock

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// only returns the one lock in the store, as a machine sees it.
func (m *machine) only(t *testing.T) Info {
	t.Helper()
	infos, err := m.Status(t.Context())
	if err != nil || len(infos) != 1 {
		t.Fatalf("%d locks: %v %v", len(infos), infos, err)
	}
	return infos[0]
}

// TestEncryptedWithoutStoreClock: an encrypted body shows only when it changes. On a store
// without a clock of its own it is watched for a whole ttl. It is taken neither for live, as
// if it were refreshed, nor for stale.
func TestEncryptedWithoutStoreClock(t *testing.T) {
	for _, key := range []string{"index/lock.exclusive", "index/lock.intent/x", "index/lock.shared/x"} {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t, mem.Options{NoStoreClock: true})
			w.put(key, []byte("\x01 this is ciphertext"))
			m := w.machine()
			for _, age := range []time.Duration{0, 10 * time.Minute} {
				time.Sleep(age)
				if i := m.only(t); i.Verdict != Doubtful || i.Why != "its body is encrypted, and the store has no clock of its own" {
					t.Errorf("%s, %v old: %v, %q", key, age, i.Verdict, i.Why)
				}
			}
			start := time.Now()
			k, err := m.Exclusive(t.Context(), "prune")
			if err != nil {
				t.Fatalf("%s holds forever: %v", key, err)
			}
			if took := time.Since(start); took < foreignTTL || took > foreignTTL+20*time.Second {
				t.Errorf("%s is passed after %v, want %v", key, took, foreignTTL)
			}
			k.Release(t.Context())
			w.empty()
		})
	}
}

// TestWholeTTLSinceBoot: by the time since boot a lock is stale after its whole ttl, and not
// before, although the store's clock, which was stepped, calls it stale at once.
func TestWholeTTLSinceBoot(t *testing.T) {
	ttls := []time.Duration{MinTTL, DefaultTTL, MaxTTL}
	for _, ttl := range rounds.Fewer(ttls, ttls[:2]) {
		for _, mode := range []Mode{Shared, Exclusive} {
			begin := func(f func(t *testing.T, a, b *machine, k *Lock)) {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, mem.Options{})
					a := w.machine(func(o *Options) { o.TTL = ttl })
					b := w.process(a)
					k, err := a.acquire(t.Context(), mode, "x")
					mustLock(t, k, err)
					a.hooks.Before(outage)
					w.skew.Store(int64(2 * MaxTTL))
					a.clock.setSkew(2 * MaxTTL) // as on a local directory
					f(t, a, b, k)
					a.hooks.Before(nil)
					k.Release(t.Context())
				})
			}
			begin(func(t *testing.T, a, b *machine, k *Lock) {
				sent := k.sent()
				for _, at := range []struct {
					age  time.Duration
					want Verdict
				}{{ttl/2 + time.Second, Doubtful}, {ttl*9/10 + time.Second/2, Doubtful}, {ttl, Doubtful}, {ttl + time.Millisecond, Stale}} {
					time.Sleep(at.age - (a.clock.Elapsed() - sent))
					if i := b.only(t); i.Verdict != at.want {
						t.Errorf("ttl %v, %v: %v after %v, want %v: %s", ttl, mode, i.Verdict, at.age, at.want, i.Why)
					}
				}
			})
			begin(func(t *testing.T, a, b *machine, k *Lock) {
				sent := k.sent()
				time.Sleep(ttl/2 + time.Second)
				other, err := b.Exclusive(t.Context(), "prune", Wait(ttl))
				if err != nil || alive(k) || a.clock.Elapsed()-sent <= ttl {
					t.Errorf("ttl %v, %v: passed %v after it was refreshed, alive %v, %v", ttl, mode, a.clock.Elapsed()-sent, alive(k), err)
				} else {
					other.Release(t.Context())
				}
			})
		}
	}
}

// TestMergedVerdictIsTheLessCertain: an exclusive lock has the less certain verdict of its two
// objects.
func TestMergedVerdictIsTheLessCertain(t *testing.T) {
	out := merge([]Info{
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.exclusive"}, Verdict: Stale},
		{Mode: Exclusive, ID: "x", Keys: []string{"index/lock.intent/x"}, Verdict: Doubtful, Why: "?"},
	})
	if out[0].Verdict == Stale {
		t.Errorf("stale and doubtful merged to %v: break --stale deletes %v", out[0].Verdict, out[0].Keys)
	}
}

// TestVerdictMargin: the store's clock has to be 2 s past the lease's end.
func TestVerdictMargin(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		wrote := time.Now()
		e := &entry{Object: store.Object{Key: "index/lock.shared/x", ModTime: wrote}, kind: kindShared, since: a.clock.Elapsed(), read: true}
		e.lease, e.err = decode(foreign(wrote, true))
		a.clock.setSkew(time.Hour)
		for age, want := range map[time.Duration]Verdict{
			60 * time.Second: Live, 62 * time.Second: Live, 62*time.Second + 1: Stale,
		} {
			now := a.clock.Elapsed()
			a.judge(e, storeTime{wrote.Add(age), now}, now)
			if e.verdict != want {
				t.Errorf("%v old: %v, want %v", age, e.verdict, want)
			}
		}
	})
}
