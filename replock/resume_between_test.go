package replock

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store/mem"
)

// TestNoResumeWhenPassedMeanwhile: a lock is not resumed if another holder was in and out
// while the resume was under way.
func TestNoResumeWhenPassedMeanwhile(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "backup")
		mustLock(t, k, err)
		a.lose(t, k)
		time.Sleep(10 * time.Second)
		// b has looked, and is about to delete the stale flag.
		came, gate := make(chan struct{}), make(chan struct{})
		var first atomic.Bool
		b.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" && r.Key == k.Key() && first.CompareAndSwap(false, true) {
				close(came)
				<-gate
			}
			return nil
		})
		var in bool
		done := make(chan struct{})
		go func() {
			defer close(done)
			other, err := b.Exclusive(context.Background(), "prune")
			if err != nil {
				t.Logf("b: %v", err)
				return
			}
			in = true
			time.Sleep(300 * time.Millisecond) // a short prune
			other.Release(context.Background())
		}()
		<-came
		var looks atomic.Int64
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && looks.Add(1) == 1 {
				close(gate)
				time.Sleep(10 * time.Millisecond)
			}
			return nil
		})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		r, err := k.Resume(ctx)
		select {
		case <-gate:
		default:
			close(gate)
		}
		<-done
		t.Logf("in between: %v; resumed: %v, %v", in, r != nil, err)
		if in && r != nil {
			t.Error("resumed although a prune has been in between")
		}
		if r != nil {
			r.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestResumeHarmsNoLaterHolder: a resume doesn't overwrite the lock.exclusive of a holder that has
// come in since.
func TestResumeHarmsNoLaterHolder(t *testing.T) {
	for name, opts := range map[string]mem.Options{"kept": {}, "lacked": lacking, "ignored": {IfAbsent: mem.Ignored, IfMatch: mem.Ignored}} {
		t.Run(name, func(t *testing.T) {
			harmed := 0
			for head := -1500 * time.Millisecond; head <= 1500*time.Millisecond; head += 50 * time.Millisecond {
				synctest.Test(t, func(t *testing.T) {
					w := newWorld(t, opts)
					a, b := w.machine(), w.machine()
					k, err := a.Exclusive(t.Context(), "x")
					mustLock(t, k, err)
					a.lose(t, k)
					time.Sleep(10 * time.Second)
					r, other := resumeAgainst(t, a, k, b, head)
					time.Sleep(2 * time.Minute)
					if r != nil && other != nil && alive(r) && alive(other) {
						t.Errorf("head %v: both", head)
					}
					if other != nil && !alive(other) {
						harmed++
						t.Logf("head %v: %v", head, other.Lost())
					}
					for _, x := range []*Lock{k, r, other} {
						if x != nil {
							x.Release(t.Context())
						}
					}
				})
			}
			if harmed > 0 {
				t.Errorf("a resume harmed a live holder %d times", harmed)
			}
		})
	}
}

// TestResumeDatesItsFlagFromWhenItIsSeen: a lock isn't resumed after a prune has come and
// gone, although a late refresh has put the old flag back and a late put replaces the new one.
func TestResumeDatesItsFlagFromWhenItIsSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(t, lacking)
		a, b := w.machine(), w.machine()
		k, err := a.Shared(t.Context(), "backup")
		mustLock(t, k, err)
		late := make(chan struct{})
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" { // the refresh that is sent at 30 s is applied at 66 s
				a.hooks.Before(outage)
				time.AfterFunc(36*time.Second, func() { w.put(r.Key, r.Body); close(late) })
				return errOutage
			}
			return nil
		})
		<-k.Context().Done()
		time.Sleep(8 * time.Second)
		other, err := b.Exclusive(t.Context(), "prune")
		mustLock(t, other, err).Release(t.Context())
		<-late
		var puts, lists atomic.Int32
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "put" && r.Key != k.Key() && puts.Add(1) == 1 {
				time.AfterFunc(7500*time.Millisecond, func() { w.put(r.Key, r.Body) })
				return errOutage
			}
			if r.Op == "list" && lists.Add(1) == 1 {
				time.Sleep(7900 * time.Millisecond)
			}
			return nil
		})
		if r, err := k.Resume(t.Context()); err == nil {
			t.Error("resumed although a prune has been in between")
			r.Release(t.Context())
		}
		k.Release(t.Context())
	})
}

// TestNoResumeOfAnEmptiedFlag: a lock with an emptied flag was passed by a client without the
// right to delete, and is not resumed.
func TestNoResumeOfAnEmptiedFlag(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a, b := w.machine(), w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		w.put(k.Key(), nil)
		a.hooks.Before(nil)
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed: %v", err)
		}
		k.Release(t.Context())
		_ = b
	})
}

// TestResumeStoppedMidway: a resume that was stopped for longer than a lease hasn't resumed by
// the flag that it put before.
func TestResumeStoppedMidway(t *testing.T) {
	for _, op := range []string{"list", "delete"} {
		for _, mode := range []Mode{Shared, Exclusive} {
			do(t, func(t *testing.T, w *world) {
				a := w.machine()
				k, err := a.acquire(t.Context(), mode, "x")
				mustLock(t, k, err)
				a.lose(t, k)
				a.hooks.Before(nil)
				var done atomic.Bool
				a.hooks.After(func(_ context.Context, r hookstore.Request, err error) error {
					if r.Op == op && (op == "delete" || r.Key == "index/lock.") && done.CompareAndSwap(false, true) {
						a.clock.jump(2 * time.Minute)
					}
					return err
				})
				r, err := k.Resume(t.Context())
				if r != nil {
					if left := r.Deadline() - a.clock.Elapsed(); left < 0 {
						t.Errorf("%s, stopped at %s: resumed with a lease that ended %v ago", mode, op, -left)
					}
					r.Release(t.Context())
				} else if !errors.Is(err, ErrLost) {
					t.Error(err)
				}
				k.Release(t.Context())
			})
		}
	}
}

// TestNoResumeBesideADoubtfulLock: a resume does not pass a lock that is only perhaps stale.
func TestNoResumeBesideADoubtfulLock(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Shared(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		w.put("index/lock.intent/x", []byte("\x01 ciphertext"))
		time.Sleep(70 * time.Second)
		a.hooks.Before(nil)
		if r, _ := k.Resume(t.Context()); r != nil {
			t.Error("resumed beside a lock that might be live")
		}
		k.Release(t.Context())
	})
}

// TestResumeTriesAgain: a resume tries again after an attempt that failed after its look.
func TestResumeTriesAgain(t *testing.T) {
	eachMode(t, func(t *testing.T, w *world, mode Mode) {
		a := w.machine()
		k, err := a.acquire(t.Context(), mode, "x")
		mustLock(t, k, err)
		a.lose(t, k)
		until := time.Now().Add(30 * time.Second)
		a.hooks.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "list" && r.Key == "index/lock." && time.Now().Before(until) {
				return errOutage
			}
			return nil
		})
		r, err := k.Resume(t.Context())
		mustLock(t, r, err)
		time.Sleep(5 * time.Minute)
		if !alive(r) {
			t.Error(r.Lost())
		}
		r.Release(t.Context())
		k.Release(t.Context())
		w.empty()
	})
}

// TestResumeNeedsLockExclusive: a lock isn't resumed without its lock.exclusive, which another
// client's break-lock deletes.
func TestResumeNeedsLockExclusive(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		a := w.machine()
		k, err := a.Exclusive(t.Context(), "x")
		mustLock(t, k, err)
		a.lose(t, k)
		a.hooks.Before(first("list", "index/lock.", func(r hookstore.Request) error { return nil }))
		var done atomic.Bool
		a.hooks.After(func(ctx context.Context, r hookstore.Request, err error) error {
			if r.Op == "put" && strings.HasSuffix(r.Key, "lock.exclusive") && done.CompareAndSwap(false, true) {
				w.mem.Delete(context.Background(), r.Key)
			}
			return err
		})
		if r, err := k.Resume(t.Context()); r != nil || !errors.Is(err, ErrLost) {
			t.Errorf("resumed without lock.exclusive: %v", err)
		}
		k.Release(t.Context())
	})
}
