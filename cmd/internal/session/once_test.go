package session

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// newOnce returns a job of an exclusive lock, in a store.
func newOnce(s store.Store) *Once {
	return &Once{Period: time.Hour, Repository: &Repository{
		Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Mode: replock.Exclusive, Operation: "prune",
		Options: replock.Options{TTL: time.Minute},
	}}
}

// TestSucceeded: the age of the last success is judged by the store's clock. Without that, it is judged by the mod time of
// the held lock. A success that is dated ahead, can't be dated or can't be read skips no job.
func TestSucceeded(t *testing.T) {
	const key, good = "index/lock-once/prune", `{"operation":"prune","holder":"web1 (pid 7)","succeeded_at":"1999-01-01T00:00:00Z"}`
	for name, c := range map[string]struct {
		key, body string
		age       time.Duration
		noTime    bool
		held      bool
		fails     error // of the first get
		skips     bool
		doubt     string
	}{
		"none":                    {key: "index/lock-once/check", body: good},
		"of a longer name":        {key: key + ".x", body: good},
		"young":                   {key: key, body: good, age: time.Minute, skips: true},
		"just before the end":     {key: key, body: good, age: time.Hour - 1, skips: true},
		"at the end":              {key: key, body: good, age: time.Hour},
		"rounded":                 {key: key, body: good, age: -ahead, skips: true},
		"ahead":                   {key: key, body: good, age: -ahead - 1, doubt: "it is dated 2s in the future"},
		"damaged":                 {key: key, body: good[:9], doubt: "it is damaged"},
		"of no holder":            {key: key, body: "{}", doubt: "it is damaged"},
		"too large":               {key: key, body: good + strings.Repeat(" ", maxSuccess), doubt: "object too large"},
		"refused":                 {key: key, body: good, fails: store.ErrPermission, doubt: "permission denied"},
		"refused for now":         {key: key, body: good, fails: errors.New("503"), skips: true},
		"undated":                 {key: key, body: good, noTime: true, doubt: "the store doesn't report how old it is, and there is no lock to compare it with"},
		"dated by the lock":       {key: key, body: good, age: time.Hour - time.Minute, noTime: true, held: true, skips: true},
		"dated by the lock, over": {key: key, body: good, age: 2 * time.Hour, noTime: true, held: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			start := time.Now()
			now := start
			s := &hookstore.Store{Store: memory.New(memory.Options{Now: func() time.Time { return now }, NoTime: c.noTime})}
			assert.OK(t, assert.Err(s.Put(t.Context(), c.key, []byte(c.body), store.PutOptions{})))
			now, flag := start.Add(c.age), ""
			if c.held {
				flag = "index/lock.intent/flag"
				assert.OK(t, assert.Err(s.Put(t.Context(), flag, nil, store.PutOptions{})))
			}
			s.Before(func(_ context.Context, r hookstore.Request) error {
				if err := c.fails; err != nil && r.Op == "get" {
					c.fails = nil
					return err
				}
				return nil
			})
			done, err := newOnce(s).Succeeded(t.Context(), flag)
			assert.That(t, (done != nil) == c.skips && (err == nil) == (c.doubt == "") && strings.Contains(fmt.Sprint(err), c.doubt), "%s: %v, %v", name, done, err)
			if done != nil {
				want := "prune has succeeded " + shown(max(c.age, 0)) + " ago, at " + start.UTC().Format(time.RFC3339) + ", by web1 (pid 7); it runs once per 1h"
				assert.Equal(t, done.Error(), want, name)
				assert.Is(t, done, fault.Succeeded)
			}
		})
	}
}

// shown is an age of TestSucceeded as a person reads it.
func shown(d time.Duration) string {
	return map[time.Duration]string{0: "0s", time.Minute: "1m", time.Hour - 1: "1h", time.Hour - time.Minute: "59m"}[d]
}

// TestOnceKeys: each operation and each job has an object of its own beside its lock, under a key that is no lock's.
func TestOnceKeys(t *testing.T) {
	seen := map[string]bool{}
	for _, name := range []string{"", "nightly"} {
		for _, operation := range []string{"prune", "Prune", "a/b", "../lock.exclusive", ".x", strings.Repeat("x", 256)} {
			for _, job := range []string{"", "prune", "a b", "\x00", strings.Repeat("x", 256)} {
				o := newOnce(nil)
				o.Place.Name, o.Repository.Operation, o.Job = name, operation, job
				key := o.key()
				folded := strings.ToLower(key)
				assert.That(t, store.CheckKey(key) == nil && !replock.IsLock(o.Place.Prefix(), key) && !seen[folded] && !strings.Contains(key, "/."), "%q", key)
				seen[folded] = true
			}
		}
	}
}

// TestStoresSuccess: a success is stored while the lock is held, and not after its lease.
func TestStoresSuccess(t *testing.T) {
	for name, c := range map[string]struct {
		lose   bool
		over   bool // the lease is over, and its loss isn't known
		loses  bool // while the store is silent
		fails  error
		stored bool
		said   string
	}{
		"held":    {stored: true},
		"over":    {over: true, said: "warning: the success can't be stored, so the next start runs the command again: lock lost"},
		"silent":  {loses: true, said: "warning: the success can't be stored, so the next start runs the command again: lock lost"},
		"lost":    {lose: true, said: "warning: the success can't be stored, so the next start runs the command again: lock lost"},
		"refused": {fails: store.ErrPermission, said: "warning: the success can't be stored, so the next start runs the command again: permission denied"},
		"late":    {fails: errors.New("503"), stored: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &hookstore.Store{Store: memory.New(memory.Options{})}
			left := time.Hour
			if c.over {
				left = 0
			}
			lock, console := lockUntil("id", clock.System{}.Elapsed()+left, false), &sayer{}
			s.Before(func(ctx context.Context, r hookstore.Request) error {
				assert.That(t, r.Op != "put" || r.Opts.Durable, "%s: a crash of the server can undo the put", name)
				err := c.fails
				if !store.Permanent(err) {
					c.fails = nil
				}
				if c.loses {
					lock.lose(false)
					<-ctx.Done()
					assert.That(t, r.N == 1, "%s: the put is repeated without the lock", name)
				}
				return err
			})
			of := &session{holder: holder{Request: Request{Once: newOnce(s), Console: console}, lock: lock.held()}}
			assert.OK(t, of.Once.Repository.openStore(t.Context()))
			if c.lose {
				lock.lose(false)
				<-of.lock.Context().Done()
			}
			of.storeSuccess(time.Now())
			of.holder.passed.Flush(t.Context())
			_, _, err := s.Store.Get(t.Context(), "index/lock-once/prune", maxSuccess)
			assert.That(t, (err == nil) == c.stored && strings.Join(console.said, "\n") == c.said, "%s: %v, said %q", name, err, console.said)
			_ = of.lock.Release(t.Context())
		})
	}
}

// sayer is a Console that keeps what it says.
type sayer struct{ said []string }

func (s *sayer) Say(format string, args ...any) {
	s.said = append(s.said, fmt.Sprintf(format, args...))
}
func (s *sayer) Alert(_, text string)   { s.said = append(s.said, text) }
func (*sayer) Event(replock.Event)      {}
func (*sayer) BeginWait(string, string) {}
func (*sayer) Interrupted()             {}
func (*sayer) EndWait()                 {}

// TestSkipsUnderTheLock: a job that has succeeded while we waited is skipped under the lock, which is released. The look
// before the acquire takes the time of one request at most.
func TestSkipsUnderTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &hookstore.Store{Store: memory.New(memory.Options{})}
		lock, console, r := newLock("id"), &sayer{}, &recorder{}
		released := false
		lock.release = func() { released = true }
		o := newOnce(s)
		start := time.Now()
		l := &fakeLocker{acquire: func(context.Context) (*lease.Set, error) {
			assert.That(t, time.Since(start) < 9*time.Second, "the first look has taken %v", time.Since(start))
			s.Before(nil)
			assert.OK(t, o.put(t.Context(), Success{Operation: "prune", Holder: "web1 (pid 7)"}))
			return lock.held(), nil
		}}
		of := &session{holder: holder{Request: Request{Once: o, Console: console, Locker: l}, show: func(replock.Event) {}, sinks: []events.Sink{r}}}
		s.Before(func(ctx context.Context, _ hookstore.Request) error { <-ctx.Done(); return ctx.Err() })
		err := of.acquireUnlessDone(t.Context())
		of.holder.passed.Flush(t.Context())
		assert.That(t, errors.Is(err, fault.Succeeded) && released && len(console.said) == 0, "%v, released: %v, said %q", err, released, console.said)
	})
}

// emptyFirst is a store whose listings have an empty first page, as S3's can.
type emptyFirst struct{ store.Store }

func (s emptyFirst) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if cursor == "" {
		return store.Page{Next: "next"}, nil
	}
	return s.Store.List(ctx, prefix, "")
}

// TestEmptyPage: an empty page is no end of a listing, so the success on the next page counts.
func TestEmptyPage(t *testing.T) {
	o := newOnce(emptyFirst{memory.New(memory.Options{})})
	assert.OK(t, o.Repository.openStore(t.Context()))
	assert.OK(t, o.put(t.Context(), Success{Operation: "prune", Holder: "web1"}))
	done, err := o.Succeeded(t.Context(), "")
	assert.That(t, done != nil && err == nil, "%v, %v", done, err)
	all, err := o.All(t.Context())
	assert.That(t, len(all) == 1 && err == nil, "%v, %v", all, err)
}

// TestInterruptedLook: a signal that comes during the look under the lock ends the start. repolock doesn't say that the
// command runs.
func TestInterruptedLook(t *testing.T) {
	ctx, interrupt := context.WithCancel(t.Context())
	s := &hookstore.Store{Store: memory.New(memory.Options{})}
	lock, console := newLock("id"), &sayer{}
	l := &fakeLocker{acquire: func(context.Context) (*lease.Set, error) {
		s.Before(func(context.Context, hookstore.Request) error { interrupt(); return errors.New("503") })
		return lock.held(), nil
	}}
	of := &session{holder: holder{Request: Request{Once: newOnce(s), Console: console, Locker: l}, show: func(replock.Event) {}}}
	assert.OK(t, of.acquireUnlessDone(ctx))
	of.holder.passed.Flush(t.Context())
	assert.That(t, len(console.said) == 0, "said %q", console.said)
	assert.OK(t, lock.held().Release(t.Context()))
}

// TestAllJobs: All returns the last success of every job, on all pages, and no other file. It returns no success as unreadable because the
// store didn't answer: a person would look for the damage.
func TestAllJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		start := time.Now()
		now := start
		s := &hookstore.Store{Store: memory.New(memory.Options{Now: func() time.Time { return now }, PageSize: 1})}
		o := newOnce(s)
		for job, body := range map[string]string{"": `{"operation":"prune","holder":"web1"}`, ".a": `{"operation":"prune","job":"a","holder":"web1"}`, "/x": `{"operation":"prune"}`, ".b": "{", ".c": strings.Repeat(" ", maxSuccess+1)} {
			assert.OK(t, assert.Err(s.Put(t.Context(), "index/lock-once/prune"+job, []byte(body), store.PutOptions{})))
		}
		assert.OK(t, assert.Err(s.Put(t.Context(), "index/lock-once/.tmp", []byte(`{"operation":"prune"}`), store.PutOptions{})))
		said := func() (lines string) {
			all, err := o.All(t.Context())
			assert.OK(t, err)
			for _, d := range all {
				lines += d.String() + "\n"
			}
			return lines
		}
		now = start.Add(time.Hour)
		at := start.UTC().Format(time.RFC3339)
		unread := "the last success of prune.b can't be read\nthe last success of prune.c can't be read\n"
		assert.Equal(t, said(), "prune has succeeded 1h ago, at "+at+", by web1\nprune (a) has succeeded 1h ago, at "+at+", by web1\n"+unread)
		now = start.Add(-time.Hour)
		assert.Equal(t, said(), "prune has succeeded at "+at+", by web1; that is dated 1h in the future\nprune (a) has succeeded at "+at+", by web1; that is dated 1h in the future\n"+unread)
		now = start.Add(-ahead)
		assert.That(t, strings.HasPrefix(said(), "prune has succeeded 0s ago"), "%s", said())
		for fails, fatal := range map[error]bool{errors.New("503"): true, store.ErrPermission: false} {
			s.Before(func(_ context.Context, r hookstore.Request) error {
				if r.Op == "get" && r.Key == "index/lock-once/prune" {
					return fails
				}
				return nil
			})
			all, err := o.All(t.Context())
			assert.That(t, errors.Is(err, fails) == fatal && (len(all) == 4) == !fatal, "%v: %v, %v", fails, all, err)
		}
	})
}
