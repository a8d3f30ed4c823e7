package session

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/internal/refresh"
	"github.com/repolock/repolock/internal/serial"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/internal/test/leapclock"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// fakeLocker is a Locker of another kind than replock's. Its events come late.
type fakeLocker struct {
	queue    serial.Queue
	observe  func(events.Event)
	acquire  func(context.Context) (*lease.Set, error) // nil: newLock
	answered bool
}

func (f *fakeLocker) happen(kind replock.EventKind, holders ...replock.Info) {
	f.queue.Add(func() {
		time.Sleep(time.Millisecond)
		f.observe(events.Event{Event: replock.Event{Kind: kind, Mode: replock.Exclusive, Holders: holders}})
	})
}

func (f *fakeLocker) Acquire(ctx context.Context, observe func(events.Event)) (*lease.Set, error) {
	f.observe = observe
	if f.acquire != nil {
		return f.acquire(ctx)
	}
	f.happen(replock.EventAcquired)
	return newLock("id").held(), nil
}

func (f *fakeLocker) Flush(ctx context.Context) { f.queue.Flush(ctx) }
func (f *fakeLocker) Answered() bool            { return f.answered }

// fakeLock is a lock that a test controls.
type fakeLock struct {
	*lease.Term
	id         string
	shared     bool
	definite   bool   // it is lost for good
	err        error  // of Check and Renew
	releaseErr error  // of Release
	check      func() // with each Check
	release    func() // with each Release
	finished   string // the result of the work
	resume     func() (*fakeLock, error)
	connection func() syscall.Conn   // or nil
	hangs      func(context.Context) // a resume that hangs until its context ends, or nil
}

// newLock returns a lock that is held for an hour.
func newLock(id string) *fakeLock { return lockUntil(id, clock.System{}.Elapsed()+time.Hour, false) }

// lockUntil returns a lock with a deadline. Its loss isn't known at once.
func lockUntil(id string, deadline time.Duration, definite bool) *fakeLock {
	l := &fakeLock{id: id, definite: definite, check: func() {}, release: func() {}}
	l.resume = func() (*fakeLock, error) { return nil, l.Lost().Err }
	l.Term = lease.New(lease.Terms{
		Schedule: refresh.Schedule{Interval: time.Hour, Deadline: time.Hour, Failures: 1, Timeout: time.Minute},
		Clock:    clock.System{}, Sent: deadline - time.Hour, Seen: clock.Read(clock.System{}), Parent: context.Background(),
		Renewal: func(context.Context) error { return l.err },
		Loss: func(expired bool, _ error) lease.Loss {
			if expired {
				time.Sleep(200 * time.Millisecond)
			}
			lost := &replock.LostError{Mode: replock.Shared, Key: "key " + id, Reason: "it is gone", Definite: l.definite}
			return lease.Loss{Err: lost, Definite: lost.Definite}
		},
	})
	l.Begin()
	return l
}

// held returns the lease.
func (l *fakeLock) held() *lease.Set { return lease.Join(nil, lease.Hold(l)) }

// lose loses the lock, for good or not.
func (l *fakeLock) lose(definite bool) {
	l.definite = definite
	l.Fail(errors.New("a test"))
}

func (l *fakeLock) About() lease.About {
	return lease.About{
		ID: l.id, Key: "key " + l.id, Operation: "test", Exclusive: !l.shared, Connection: l.connection, Finish: func(success bool) { l.finished += fmt.Sprint(success) },
	}
}
func (l *fakeLock) Check(context.Context) error { l.check(); return l.err }
func (l *fakeLock) Free(context.Context) error  { l.release(); return l.releaseErr }
func (l *fakeLock) Resumed()                    {}
func (l *fakeLock) Reacquire(ctx context.Context) (lease.Owner, error) {
	if l.hangs != nil {
		l.hangs(ctx)
		<-ctx.Done()
		return nil, ctx.Err()
	}
	next, err := l.resume()
	if err != nil {
		return nil, err
	}
	return next, nil
}

// recorder is a Sink that hangs at each event for a while.
type recorder struct {
	kinds []replock.EventKind
	hang  time.Duration
}

func (r *recorder) Handle(e events.Event) {
	time.Sleep(r.hang)
	r.kinds = append(r.kinds, e.Kind)
}

func newHolder(t *testing.T, l Locker, sink events.Sink) *holder {
	h := &holder{
		Request: Request{Locker: l, Sinks: func() ([]events.Sink, error) { return []events.Sink{sink}, nil }},
		show:    func(replock.Event) {},
	}
	assert.OK(t, h.open())
	return h
}

// TestOrder: a pause is recorded after the loss of its lock, and before the later events. A note after flush comes
// after the lock's events, even if these arrive late, and the record is slow.
func TestOrder(t *testing.T) {
	l, r := &fakeLocker{}, &recorder{hang: 2 * time.Millisecond}
	h := newHolder(t, l, r)
	assert.OK(t, h.acquire(t.Context()))
	want := []replock.EventKind{replock.EventAcquired}
	for range 20 {
		l.happen(replock.EventLost)
		h.notePause()
		l.happen(replock.EventResumed)
		h.flush()
		h.note(events.CommandContinued, events.Event{})
		want = append(want, replock.EventLost, events.CommandPaused, replock.EventResumed, events.CommandContinued)
	}
	h.flush()
	assert.That(t, slices.Equal(r.kinds, want), "recorded: %v", r.kinds)
}

// TestNoteDoesNotWait: note returns at once, even if the locker or a record hangs. Its event comes before the lock's
// next event.
func TestNoteDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l, r := &fakeLocker{}, &recorder{hang: time.Hour}
		h := newHolder(t, l, r)
		_ = h.acquire(t.Context()) // it waits for maxFlush
		l.queue.Add(func() { time.Sleep(time.Hour) })
		start := time.Now()
		h.note(events.WorkEnded, events.Event{})
		assert.Equal(t, time.Since(start), 0, "to note takes")
		l.happen(replock.EventReleased)
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		want := []replock.EventKind{replock.EventAcquired, events.WorkEnded, replock.EventReleased}
		assert.That(t, slices.Equal(r.kinds, want), "recorded: %v", r.kinds)
	})
}

// TestOwnLockInTheWay: a wait for a lock that this process runs under ends.
func TestOwnLockInTheWay(t *testing.T) {
	t.Setenv(outerVariable, "aa:place")
	l := &fakeLocker{}
	h := newHolder(t, l, &recorder{})
	l.acquire = func(ctx context.Context) (*lease.Set, error) {
		l.happen(replock.EventWaiting, replock.Info{ID: "bb"})
		l.happen(replock.EventWaiting, replock.Info{ID: "aa"})
		l.queue.Flush(t.Context())
		h.passed.Flush(t.Context())
		return nil, context.Cause(ctx)
	}
	h.HeldCode = 3
	ctx, cancel := context.WithCancelCause(t.Context())
	h.cancel = cancel
	err := h.acquire(ctx)
	var held HeldError
	assert.That(t, errors.As(err, &held) && held.Own && held.Holders[0].ID == "aa" && held.ExitCode == 3 && errors.Is(err, replock.ErrHeld),
		"%+v", err)
}

// TestRefusalNamesItsPlace: a refusal of several locks names the place of the held one.
func TestRefusalNamesItsPlace(t *testing.T) {
	first, second := Place{Repo: "/srv/a"}, Place{URL: "beads:/srv/b/.beads"}
	held := &replock.HeldError{Mode: replock.Exclusive, Holders: []replock.Info{{Keys: []string{"key"}}}}
	for _, c := range []struct {
		err  error
		want Place
	}{
		{held, first},
		{HeldError{HeldError: held}, first}, // Place{} is the repository's in a set
		{HeldError{HeldError: held, Place: second}, second},
	} {
		h := newHolder(t, &fakeLocker{acquire: func(context.Context) (*lease.Set, error) { return nil, c.err }}, &recorder{})
		h.Place, h.Others, h.HeldCode = first, []Place{second}, 3
		err := h.acquire(t.Context())
		var got HeldError
		assert.That(t, errors.As(err, &got) && got.Place == c.want && got.ExitCode == 3 && strings.Contains(err.Error(), c.want.Where()), "%v", err)
	}
}

// TestEnvironOfSeveral: a command gets the repository of its lock. For a repolock in it all places are outer ones, and
// the repository's is the innermost.
func TestEnvironOfSeveral(t *testing.T) {
	repo, redis, beads := Place{Repo: "s3://bucket/x"}, Place{URL: "redis://host:6379/0?key=k", Name: "k"}, Place{URL: "beads:/b/.beads"}
	env := Environ([]Place{repo, redis, beads}, []string{"aa", "bb", "cc"}, "exclusive", 7, "")
	for _, want := range []string{
		"REPOLOCK_HELD=1", "REPOLOCK_REPO=s3://bucket/x", "REPOLOCK_MODE=exclusive", "REPOLOCK_ID=aa", "REPOLOCK_FENCE=7",
		outerVariable + "=cc:" + beads.ID() + " bb:" + redis.ID() + " aa:" + repo.ID(),
	} {
		assert.That(t, slices.Contains(env, want), "%s is missing in %q", want, env)
	}
	for _, alone := range [][]Place{{redis, beads}, {{Repo: "/srv/a", Name: "n", URL: "repo:/srv/a#n"}, redis}} {
		env = Environ(alone, []string{"aa", "bb"}, "exclusive", 0, "token")
		assert.That(t, !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "REPOLOCK_REPO=") }) &&
			slices.Contains(Unset(env), "REPOLOCK_REPO") && slices.Contains(Unset(env), "REPOLOCK_FENCE"), "without a repository: %q", env)
	}
	t.Setenv(outerVariable, "bb:place")
	env = Environ([]Place{redis}, []string{"aa"}, "exclusive", 0, "token")
	want := outerVariable + "=bb:place aa:" + redis.ID() + ":token"
	assert.That(t, slices.Contains(env, want), "under another lock: %q", env)
}

// TestNoPasswordInEnviron: no command gets the passwords of locks, with a lock or without one. Without one
// it has no claim to a lock around it.
func TestNoPasswordInEnviron(t *testing.T) {
	assert.Need(t, len(Passwords) >= 2, "%q", Passwords)
	for _, name := range Passwords {
		t.Setenv(name, "hunter2")
	}
	for _, name := range append(claims, "REPOLOCK_TOKEN") {
		t.Setenv(name, "of hunter2")
	}
	t.Setenv("UNRELATED", "stays")
	t.Setenv("REPOLOCK_REPO", "s3://key:hunter2@bucket/p")
	assert.That(t, slices.Contains(bareEnviron(), "REPOLOCK_REPO="), "a command without a lock takes another repository")
	h := &holder{Request: Request{Others: []Place{{URL: "redis://host:6379/0?key=k"}}}, lock: newLock("id").held()}
	locked := slices.DeleteFunc(h.environ(), func(v string) bool { return strings.HasPrefix(v, "REPOLOCK_TOKEN=") })
	for what, env := range map[string][]string{"locked": locked, "bare": bareEnviron()} {
		assert.That(t, !strings.Contains(strings.Join(env, "\n"), "hunter2") && slices.Contains(env, "UNRELATED=stays"), "%s: %q", what, env)
	}
	assert.That(t, os.Getenv(Passwords[0]) != "", "our own is gone")
}

// TestOuterLocks: the innermost lock around this process names the lock of a repository. A lock is our own
// if this process runs under it, or if its holder waits for the lock that we run under.
func TestOuterLocks(t *testing.T) {
	outer, redis, inner := Place{Repo: "/q", Name: "n"}, Place{URL: "redis://host:6379/0?key=k"}, Place{Repo: "/r", Name: "n"}
	t.Setenv(outerVariable, "aa:"+outer.ID()+" dd:"+redis.ID()+" bb:"+inner.ID())
	t.Setenv(nameVariable, "n")
	assert.That(t, NameOfOuter("/r") == "n" && NameOfOuter("/q") == "", "%q and %q", NameOfOuter("/r"), NameOfOuter("/q"))
	for _, c := range []struct {
		place  Place
		holder replock.Info
		own    bool
	}{
		{inner, replock.Info{ID: "aa"}, true},
		{inner, replock.Info{ID: "cc", AcquiredID: "bb"}, true}, // it was resumed
		{inner, replock.Info{ID: "cc"}, false},
		{inner, replock.Info{ID: "cc", State: replock.StateWaiting}, true},
		{Place{Repo: "/other"}, replock.Info{ID: "cc", State: replock.StateWaiting}, false},
		{inner, replock.Info{}, false},
		{redis, replock.Info{ID: "another system's id"}, true},
		{Place{URL: "beads:/b/.beads"}, replock.Info{ID: "another system's id"}, false},
	} {
		assert.That(t, c.place.anyOwn([]replock.Info{c.holder}) == c.own, "%s, %+v: own %t", c.place.Repo, c.holder, !c.own)
	}
}

// TestRedact: a repository's URL is shown without what can be a secret.
func TestRedact(t *testing.T) {
	for url, want := range map[string]string{
		"s3://bucket/p?region=r": "s3://bucket/p?region=r", "s3://key:hunter2@bucket/p?region=r#hunter2": "s3://bucket/p",
		"gopher://h/x?token=hunter2": "gopher://h/x", "s3://bucket/%zz": "", "/srv/a#b": "/srv/a#b",
		"sftp://me@host:22//srv/a": "sftp://me@host:22//srv/a", "sftp://me:hunter2@host/a": "sftp://host/a",
		"sftp://me@host/a?command=sshpass%20-phunter2%20ssh": "sftp://me@host/a?command=...", "sftp://me@host/a?listings=fresh": "sftp://me@host/a?listings=fresh",
	} {
		assert.Equal(t, Redact(url), want, url)
	}
}

// surveyor is a store that needs no listing to find other objects.
type surveyor struct{ store.Store }

func (s surveyor) HasOther(ctx context.Context, prefix string) (bool, error) {
	keys, err := store.Keys(ctx, s, "")
	return slices.ContainsFunc(keys, func(key string) bool { return !strings.HasPrefix(key, prefix) }), err
}

// TestSurvey: a repository that contains only locks is reported once. It isn't reported if its listing has more
// pages, or fails; then the next acquire looks again, unless listing isn't allowed.
func TestSurvey(t *testing.T) {
	for name, c := range map[string]struct {
		keys        []string
		page        int
		err         error
		surveys     bool // the store is a surveyor, whose listing has pages
		says, again bool
	}{
		"locks":     {[]string{"index/lock.exclusive", "index/locks/n/lock.shared/x"}, 0, nil, false, true, false},
		"more":      {[]string{"index/lock.exclusive", "zoo"}, 0, nil, false, false, false},
		"pages":     {[]string{"index/lock.exclusive", "zoo"}, 1, nil, false, false, true},
		"forbidden": {nil, 0, store.ErrPermission, false, false, false},
		"silent":    {nil, 0, store.ErrUnreachable, false, false, true},

		"locks, without a listing":     {[]string{"index/lock.exclusive", "index/locks/n/lock.shared/x"}, 1, nil, true, true, false},
		"more, without a listing":      {[]string{"index/lock.exclusive", "zoo"}, 1, nil, true, false, false},
		"forbidden, without a listing": {nil, 0, store.ErrPermission, true, false, false},
		"silent, without a listing":    {nil, 0, store.ErrUnreachable, true, false, true},
	} {
		t.Setenv("XDG_CACHE_HOME", t.TempDir())
		t.Setenv("HOME", t.TempDir())
		m, said := memory.New(memory.Options{PageSize: c.page}), 0
		for _, key := range c.keys {
			assert.OK(t, assert.Err(m.Put(t.Context(), key, nil, store.PutOptions{})))
		}
		hooked := &hookstore.Store{Store: m}
		hooked.Before(func(context.Context, hookstore.Request) error { return c.err })
		var s store.Store = hooked
		if c.surveys {
			s = surveyor{s}
		}
		survey := func() *Survey {
			return NewSurvey(Place{Repo: "s3://bucket/p"}, "--repo", func(context.Context) (store.Store, error) { return s, nil }, func(string, ...any) { said++ })
		}
		synctest.Test(t, func(t *testing.T) {
			first := survey()
			first.Start(t.Context())
			first.Report()()
			again := survey() != nil
			assert.That(t, (said == 1) == c.says && again == c.again && first.answered() == (c.err != store.ErrUnreachable),
				"%s: said %d times, again %t, answered %t", name, said, again, first.answered())
		})
	}
}

// TestSurveyGivesUp: a survey of a repository that hangs ends after a while, and the end of the work waits for it only for
// maxReport. A repository whose survey takes longer isn't surveyed again.
func TestSurveyGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Survey{mark: filepath.Join(t.TempDir(), "seen"), done: make(chan struct{}), say: func(string, ...any) { t.Error("something is said") }}
		s.open = func(ctx context.Context) (store.Store, error) { <-ctx.Done(); return nil, ctx.Err() }
		began := time.Now()
		s.Start(t.Context())
		s.Report()()
		assert.Equal(t, time.Since(began), maxReport)
		_, err := os.Lstat(s.mark)
		assert.OK(t, err)
		<-s.done
		assert.Equal(t, time.Since(began), maxSurvey)
	})
}

// hanging is a Locker whose events never come.
type hanging struct{ fakeLocker }

func (*hanging) Flush(ctx context.Context) { <-ctx.Done() }

// TestFlushGivesUp: a Locker and a record that hang don't hang us for longer than maxFlush.
func TestFlushGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHolder(t, new(hanging), &recorder{hang: time.Hour})
		h.passed.Add(func() { h.handle(events.Event{}) })
		began := time.Now()
		h.flush()
		assert.Equal(t, time.Since(began), maxFlush)
		h.passed.Flush(t.Context()) // the record ends
	})
}

// TestSurveyNeedsHome: without a home directory nothing is surveyed, and no directory is made.
func TestSurveyNeedsHome(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", "")
	t.Setenv("LocalAppData", "")
	for _, home := range []string{"relative", filepath.Join(t.TempDir(), "missing")} {
		t.Setenv("HOME", home)
		assert.That(t, NewSurvey(Place{Repo: "s3://bucket/p"}, "--repo", nil, nil) == nil, "a survey at %q", home)
	}
}

// TestAnsweredRepository: any answer of its store is an answer of the repository. Before it is opened, it has no events
// to flush.
func TestAnsweredRepository(t *testing.T) {
	for _, answer := range []error{store.ErrUnreachable, store.ErrPermission} {
		synctest.Test(t, func(t *testing.T) {
			s := &hookstore.Store{Store: memory.New(memory.Options{})}
			s.Before(func(context.Context, hookstore.Request) error { return answer })
			r := &Repository{Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Options: replock.Options{Clock: leapclock.New()}, Mode: replock.Shared, Operation: "test"}
			r.Flush(t.Context())
			_, err := r.Acquire(t.Context(), func(events.Event) {})
			assert.That(t, errors.Is(err, answer) && r.Answered() == (answer != store.ErrUnreachable), "%v, answered %t", err, r.Answered())
			r.Flush(t.Context())
		})
	}
}

// TestFlushWaits: a repository's Flush waits until its events were observed.
func TestFlushWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		r := &Repository{Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Mode: replock.Exclusive, Operation: "test"}
		var seen atomic.Int64
		lock, err := r.Acquire(t.Context(), func(events.Event) { time.Sleep(time.Second); seen.Add(1) })
		assert.OK(t, err)
		before := seen.Load()
		r.Flush(t.Context())
		assert.That(t, seen.Load() > before, "%d events, and after the flush %d", before, seen.Load())
		assert.OK(t, lock.Release(t.Context()))
		r.Flush(t.Context())
	})
}

// TestLockOutlivesItsAcquire: the end of the acquire's context, by a signal, doesn't end the context of the lock. Only
// a loss or the release does.
func TestLockOutlivesItsAcquire(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := memory.New(memory.Options{})
		r := &Repository{Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Mode: replock.Exclusive, Operation: "test"}
		ctx, cancel := context.WithCancel(t.Context())
		lock, err := r.Acquire(ctx, func(events.Event) {})
		cancel()
		assert.OK(t, err)
		time.Sleep(time.Hour)
		err = lock.Check(t.Context())
		assert.That(t, err == nil && lock.Context().Err() == nil, "%v, %v", err, lock.Context().Err())
		assert.Is(t, lock.Release(t.Context()), nil)
	})
}

// TestMalformedOuterLocksStay: entries of other forms are passed on as they are.
func TestMalformedOuterLocksStay(t *testing.T) {
	p := Place{Repo: "s3://bucket"}
	for _, outer := range []string{"aa", "aa:", ":place", ":", "aa:place:", "aa:place:no-token:", "aa:place:no:token::"} {
		t.Setenv(outerVariable, outer)
		want := outerVariable + "=" + outer + " bb:" + p.ID()
		got := Environ([]Place{p}, []string{"bb"}, "shared", 0, "")
		assert.That(t, slices.Contains(got, want), "%q became %q", outer, got)
	}
}

// TestCauseFirst: people read the cause and the server first, then the consequence, and the
// request and its key last, without the words of Go's packages.
func TestCauseFirst(t *testing.T) {
	put := func(err error) error { return &store.Error{Op: "put", Key: "index/k", Err: err} }
	late := func(err error) error { return fault.With(err, func(e *fault.Error) { e.Within = 3 * time.Second }) }
	refused := &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	for _, c := range []struct {
		err  error
		want string
	}{
		{
			fault.While("writing the lock", late(put(fmt.Errorf("127.0.0.1:9: %w", context.DeadlineExceeded)))),
			`127.0.0.1:9: no answer within 3s; nothing was run (writing the lock)`,
		},
		{late(put(context.DeadlineExceeded)), `no answer within 3s; nothing was run (put)`},
		{fault.While("writing the lock", put(fmt.Errorf("h:9: %w", refused))), `h:9: connection refused; nothing was run (writing the lock)`},
		{fault.Errorf("s3://b/p: %w", fault.While("writing the lock", put(errors.New("h answers 503")))), `s3://b/p: h answers 503; nothing was run (writing the lock)`},
		{fault.Join(put(refused), put(refused)), `connection refused, and 1 more like it; nothing was run (put)`},
		{fault.Join(put(refused), NotAcquired(fault.Join(put(errors.New("full")), put(refused)), false)), `connection refused, and 1 more like it (put); full; nothing was run (put)`},
		{
			fault.Join(put(fmt.Errorf("%w: /r/index is read-only", store.ErrPermission)), put(fmt.Errorf("%w: /r/index is read-only", store.ErrPermission))),
			`permission denied: /r/index is read-only, and 1 more like it; nothing was run (put)`,
		},
		{fault.Join(put(fmt.Errorf("%w in /r/a", store.ErrFull)), put(fmt.Errorf("%w in /r", store.ErrFull))), `no space left in /r/a; nothing was run (put)`},
		{fmt.Errorf("two: %w", fault.Join(put(refused), errors.New("full"))), `two: put "index/k": connection refused; full; nothing was run`},
		{fault.Join(fault.While("still there", put(errors.New("no"))), fault.While("still there", put(errors.New("no"))), put(errors.New("yes"))), `no, and 1 more like it (still there); yes; nothing was run (put)`},
		{put(fault.Join(refused, errors.New("full"))), `connection refused; full; nothing was run (put)`},
		{errors.New("interrupt"), "interrupt; nothing was run"},
		{
			fault.Errorf("%w; repolock killed the command", &replock.LostError{Mode: replock.Shared, Key: "index/l", Reason: "it could not be refreshed in time", Err: put(fmt.Errorf("h:9: %w", refused))}),
			"shared lock lost: it could not be refreshed in time: h:9: connection refused; repolock killed the command; nothing was run",
		},
		{&replock.LostError{Mode: replock.Exclusive, Key: "x", Reason: "it is gone", Err: locking.ErrLost}, "exclusive lock lost: it is gone; nothing was run (x)"},
	} {
		assert.Equal(t, Words(c.err, "; nothing was run"), c.want, c.err)
	}
}

// TestHoldersFirst: a refusal names holders before waiters, also with all details.
func TestHoldersFirst(t *testing.T) {
	locks := []replock.Info{{ID: "waiter", State: replock.StateWaiting}, {ID: "holder"}}
	err := NewHeldError(&replock.HeldError{Holders: locks}, Place{}, 75)
	assert.That(t, err.Holders[0].ID == "holder" && err.Holders[1].ID == "waiter" && locks[0].ID == "waiter", "%+v of %+v", err.Holders, locks)
}

// TestMeanwhile: about a stopped command repolock says until when it tries to resume the lock, and what to do: about a
// full disk, to free space.
func TestMeanwhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &session{Command: Command{ResumeFor: 10 * time.Minute}}
		s.Located = func(hint string) string { return fault.Expand(hint, nil) + ", as located" }
		for advice, cause := range map[string]error{"free space outside of the repository": store.ErrFull, "repolock doctor examines the store": store.ErrUnreachable} {
			says := s.meanwhile(&replock.LostError{Err: cause})
			end := "until " + time.Now().Add(10*time.Minute).UTC().Format(time.RFC3339) + ", and then kills the command; "
			assert.That(t, strings.Contains(says, end) && strings.Contains(says, advice) && strings.HasSuffix(says, ", as located"), "%s", says)
		}
	})
}

// TestMemory: what a Locker finds out about a repository is remembered for the next process of this user, for a week. What
// the user tells isn't, and a file that doesn't have it is no answer.
func TestMemory(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	s := &hookstore.Store{Store: memory.New(memory.Options{})}
	assert.OK(t, assert.Err(s.Put(t.Context(), "config", []byte("{}"), store.PutOptions{})))
	memory := NewMemory(Place{Repo: "s3://bucket/p"})
	acquires := func(told replock.Beside) (gets int) {
		s.Count()
		r := &Repository{Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Mode: replock.Shared, Operation: "test",
			Options: replock.Options{Beside: told}, Remember: memory}
		lock, err := r.Acquire(t.Context(), func(events.Event) {})
		assert.OK(t, err)
		assert.OK(t, lock.Release(t.Context()))
		_, by := s.Count()
		return by["get"]
	}
	assert.Equal(t, acquires(replock.BesideNobody), 0, "inquiries of a Locker that was told")
	assert.Equal(t, memory.Beside(), replock.BesideUnknown, "remembered after it was told")
	assert.Equal(t, acquires(replock.BesideUnknown), 1, "inquiries of the first Locker")
	assert.Equal(t, memory.Beside(), replock.BesideCloudstic, "remembered")
	assert.Equal(t, acquires(replock.BesideUnknown), 0, "inquiries of the second Locker")
	old := time.Now().Add(-lasts - time.Hour)
	assert.OK(t, os.Chtimes(string(memory.beside), old, old))
	assert.Equal(t, acquires(replock.BesideUnknown), 1, "inquiries after a week")
	assert.OK(t, os.WriteFile(string(memory.beside), []byte("cloudst"), 0o600))
	assert.Equal(t, memory.Beside(), replock.BesideUnknown, "remembered of a part of the text")
	Memory{}.NoteBeside(replock.BesideNobody)
	assert.Equal(t, Memory{}.Beside(), replock.BesideUnknown, "remembered without a cache directory")
}

// locatedStore is a store whose puts might create its bucket.
type locatedStore struct {
	*hookstore.Store
	at string
}

func (s locatedStore) Location() string { return s.at }

// TestMemoryOfABucket: a process looks for the bucket before its first put unless an earlier process of this user has
// found it there in the last week. If a put finds no bucket, the next process looks again.
func TestMemoryOfABucket(t *testing.T) {
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	s := locatedStore{&hookstore.Store{Store: memory.New(memory.Options{PutCreates: true})}, "https://host/bucket/p/"}
	remember := NewMemory(Place{Repo: "s3://bucket/p?endpoint=https://host"})
	acquire := func() (first string, err error) {
		var once sync.Once
		s.Before(func(_ context.Context, r hookstore.Request) error {
			once.Do(func() { first = r.Op })
			return nil
		})
		r := &Repository{Open: func(context.Context) (store.Store, error) { return s, nil }, New: replock.New, Mode: replock.Shared, Operation: "test",
			Options: replock.Options{Beside: replock.BesideNobody}, Remember: remember}
		lock, err := r.Acquire(t.Context(), func(events.Event) {})
		if err == nil {
			assert.OK(t, lock.Release(t.Context()))
		}
		return first, err
	}
	begins := func(with, when string) {
		t.Helper()
		first, err := acquire()
		assert.OK(t, err)
		assert.Equal(t, first, with, "the first request "+when)
	}
	begins("list", "of the first process")
	begins("put", "of the second process")
	s.at = "https://other/bucket/p/"
	begins("list", "if the URL leads to another server")
	begins("put", "of the second process on the other server")
	old := time.Now().Add(-lasts - time.Hour)
	assert.OK(t, os.Chtimes(string(remember.exists), old, old))
	begins("list", "after a week")
	s.Before(func(context.Context, hookstore.Request) error { return nil })

	gone := locatedStore{&hookstore.Store{Store: s.Store.Store}, s.at}
	gone.Before(func(context.Context, hookstore.Request) error { return store.ErrNotFound })
	r := &Repository{Open: func(context.Context) (store.Store, error) { return gone, nil }, New: replock.New, Mode: replock.Shared, Operation: "test", Remember: remember}
	_, err := r.Acquire(t.Context(), func(events.Event) {})
	assert.Is(t, err, store.ErrNotFound)
	begins("list", "after a put has found no bucket")
	assert.That(t, !Memory{}.Exists(s.at), "remembered without a cache directory")
}
