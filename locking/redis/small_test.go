package redis

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// small is a server that has only the commands and the scripts of this package. The tests with the tag programs use the
// real one.
type small struct {
	t       *testing.T
	address string

	mu      sync.Mutex
	now     time.Time // which only a test moves on, so that no lock expires by itself on a busy machine
	keys    map[string]value
	info    string            // the answer to INFO
	instead map[string]string // answers to commands that aren't executed
	after   map[string]string // answers to commands that are executed
	once    bool              // each of these answers is given only once
	sent    []string          // the names of commands and scripts, in order
}

// value is the value of a key. It never expires if expires is zero.
type value struct {
	text    string
	list    bool
	expires time.Time
}

func newSmall(t *testing.T) *small {
	t.Helper()
	s := &small{t: t, now: time.Now(), keys: map[string]value{}, instead: map[string]string{}, after: map[string]string{}}
	s.address = fake(t, s.answer)
	return s
}

func (s *small) client() *Backend { return s.open(Options{}) }

// open opens a backend that waits for the server for as long as a busy machine needs.
func (s *small) open(o Options) *Backend {
	s.t.Helper()
	b := open(s.t, "redis://"+s.address+"/0?key=k", o)
	b.takedownLimit = assert.Hang
	limits := b.client.Options()
	limits.ReadTimeout, limits.WriteTimeout = assert.Hang, assert.Hang
	return b
}

// do changes the server's state.
func (s *small) do(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f()
}

// asked returns how often a command or script was sent, and begins anew.
func (s *small) asked(name string) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, sent := range s.sent {
		if sent == name {
			n++
		}
	}
	s.sent = nil
	return n
}

var scripts = map[string]string{renewScript: "renew", releaseScript: "release", breakScript: "break", noteScript: "note", "return 1": "script"}

func (s *small) answer(c []string) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	name, key := strings.ToLower(c[0]), ""
	switch {
	case name == "eval":
		name, key = scripts[c[1]], c[3]
	case len(c) > 1:
		key = c[1]
	}
	if name == "get" && strings.HasPrefix(key, notePrefix) {
		name = "get note"
	}
	s.sent = append(s.sent, name)
	instead, notExecuted := s.instead[name]
	after, executed := s.after[name]
	if s.once {
		delete(s.instead, name)
		delete(s.after, name)
	}
	if notExecuted {
		return instead
	}
	a := s.execute(name, key, c)
	if executed {
		return after
	}
	return a
}

func (s *small) execute(name, key string, c []string) string {
	for k, v := range s.keys {
		if !v.expires.IsZero() && !s.now.Before(v.expires) {
			delete(s.keys, k)
		}
	}
	in := func(ms string) time.Time {
		n, err := strconv.ParseInt(ms, 10, 64)
		assert.Is(s.t, err, nil)
		return s.now.Add(time.Duration(n) * time.Millisecond)
	}
	bulk := func(text string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(text), text) }
	v, there := s.keys[key]
	switch name {
	case "hello":
		return "*0\r\n"
	case "ping":
		return "+PONG\r\n"
	case "info":
		return bulk(s.info)
	case "config":
		return "*2\r\n" + bulk("appendfsync") + bulk("always")
	case "time":
		return "*2\r\n" + bulk(fmt.Sprint(s.now.Unix())) + bulk("0")
	case "set":
		if there {
			return "$-1\r\n"
		}
		s.keys[key] = value{text: c[2], expires: in(c[5])}
		return "+OK\r\n"
	case "get", "get note":
		switch {
		case !there:
			return "$-1\r\n"
		case v.list:
			return "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
		}
		return bulk(v.text)
	case "pttl":
		switch {
		case !there:
			return ":-2\r\n"
		case v.expires.IsZero():
			return ":-1\r\n"
		}
		return fmt.Sprintf(":%d\r\n", v.expires.Sub(s.now).Milliseconds())
	case "renew", "release", "break":
		same := v.text == c[4]
		if name == "break" {
			same = revision(v.text) == c[4]
		}
		switch {
		case !there:
			return ":0\r\n"
		case v.list || !same:
			return ":2\r\n"
		case name == "renew":
			s.keys[key] = value{text: v.text, expires: in(c[5])}
		default:
			delete(s.keys, key)
		}
	case "note":
		note := c[4]
		switch old, noted := s.keys[note]; {
		case v.text != c[5]:
			return ":0\r\n"
		case c[6] == dropNote:
			delete(s.keys, note)
		case c[6] == keepNote && noted:
			s.keys[note] = value{text: old.text, expires: in(c[7])}
		case c[6] != keepNote:
			s.keys[note] = value{text: c[6], expires: in(c[7])}
		}
	}
	return ":1\r\n"
}

// TestContract: the backend keeps the contract on a server that works, and leaves nothing there.
func TestContract(t *testing.T) {
	s := newSmall(t)
	lockingtest.Run(t, lockingtest.Config{
		Rounds: rounds.Fewer(200, 20),
		New:    func(*testing.T) locking.Backend { return s.client() },
		Lose: func(t *testing.T, key string) {
			t.Helper()
			s.do(func() { delete(s.keys, DefaultPrefix+key) })
		},
		Expires: true,
		TTL:     time.Minute,
		Advance: func(d time.Duration) { s.do(func() { s.now = s.now.Add(d) }) },
		BadKeys: []string{"", "a\nb", "\x00", "\xff", strings.Repeat("k", 513)},
	})
	s.do(func() { assert.Equal(t, len(s.keys), 0, "what is left behind") })
}

// TestOutOfTheOrdinary: a ttl that the server can't count is refused, and a closed backend sends nothing. A second Close
// does nothing.
func TestOutOfTheOrdinary(t *testing.T) {
	s := newSmall(t)
	b := s.client()
	_, ok, err := b.TryLock(t.Context(), "k", time.Millisecond-1)
	assert.That(t, !ok && err != nil && s.asked("set") == 0, "%v, %v", ok, err)
	h := lockcheck.Acquire(t, b, "k", time.Millisecond*100000)
	for range 2 {
		assert.OK(t, b.Close())
	}
	assert.Is(t, b.Renew(t.Context(), h), errClosed)
	assert.Equal(t, s.asked("renew"), 0)
	assert.Says(t, assert.Err(Open(Target{Host: "h", Port: 1, User: "u", Key: "k"}, Options{})), locking.ErrPermission, "has no password")
}

// TestInspectReads: Inspect describes the holder by its note, if the note is of the present lock. A lock without one is
// held all the same. A key that doesn't expire, or isn't a string, is held by an unknown program. An error of one
// command is an error, and not a free lock.
func TestInspectReads(t *testing.T) {
	s := newSmall(t)
	b := s.open(Options{Holder: "nightly"})
	lockcheck.Free(t, b, "k")
	h := lockcheck.Acquire(t, b, "k", time.Hour)
	lock, note := "bext:lock:k", notePrefix+"bext:lock:k"
	seen := lockcheck.Seen(t, b, "k")
	assert.That(t, seen.Holder == "nightly" && seen.TTL == time.Hour && seen.Renewed.Before(time.Now().Add(time.Minute)), "%+v", seen)
	s.do(func() { s.now = s.now.Add(40 * time.Minute) })
	seen = lockcheck.Seen(t, b, "k")
	assert.That(t, seen.TTL == time.Hour && time.Since(seen.Renewed) >= 39*time.Minute, "after 40 minutes: %+v", seen)
	for what, change := range map[string]func(){
		"another lock's note": func() { s.keys[lock] = value{text: "theirs", expires: s.keys[lock].expires} },
		"no note":             func() { delete(s.keys, note) },
		"a damaged note":      func() { s.keys[note] = value{text: "{"} },
	} {
		var was, wasNote value
		s.do(func() { was, wasNote = s.keys[lock], s.keys[note]; change() })
		seen = lockcheck.Seen(t, b, "k")
		assert.That(t, seen.Holder == "" && seen.TTL <= 20*time.Minute && seen.Acquired.IsZero() && seen.Unreadable == "", "%s: %+v", what, seen)
		s.do(func() { s.keys[lock], s.keys[note] = was, wasNote })
	}
	s.do(func() {
		n := s.keys[note]
		n.text = strings.Replace(n.text, `"ttl_ms":3600000`, `"ttl_ms":1`, 1)
		s.keys[note] = n
	})
	seen = lockcheck.Seen(t, b, "k")
	assert.That(t, seen.Holder == "nightly" && seen.TTL > time.Minute, "a note with too short a ttl: %+v", seen)
	for command, answer := range map[string]string{"get": "-ERR something new\r\n", "pttl": "-ERR something new\r\n"} {
		s.do(func() { s.instead[command] = answer })
		info, err := b.Inspect(t.Context(), "k")
		assert.That(t, info == nil && err != nil, "%s fails: %+v, %v", command, info, err)
		s.do(func() { delete(s.instead, command) })
	}
	s.do(func() { s.instead["pttl"] = ":-2\r\n" })
	lockcheck.Free(t, b, "k") // it has expired between the two commands
	s.do(func() { delete(s.instead, "pttl") })
	lockcheck.Breaks(t, b, seen, true, false)
	assert.Equal(t, s.asked("break"), 0, "no lock in Redis is stale")
	lockcheck.Renew(t, b, h)
	for what, v := range map[string]value{"doesn't expire": {text: "theirs"}, "isn't a string": {list: true}} {
		s.do(func() { s.keys[lock] = v })
		lockcheck.Held(t, b, "k")
		seen = lockcheck.Seen(t, b, "k")
		assert.That(t, strings.Contains(seen.Unreadable, what) && !seen.Stale, "%+v", seen)
		broken, err := b.Break(t.Context(), seen, false)
		assert.That(t, broken == !v.list && (err != nil) == v.list, "%s: broken %v, %v", what, broken, err)
	}
}

// TestUnanswered: if the answer to a request is lost, the request was executed or not, and the error says what is known.
func TestUnanswered(t *testing.T) {
	s := newSmall(t)
	b, other := s.client(), s.client()
	lose := func(executed bool, name string) (again func()) {
		into := s.instead
		if executed {
			into = s.after
		}
		s.do(func() { into[name] = closing })
		return func() { s.do(func() { delete(into, name) }) }
	}
	// The lock is acquired if the server has executed SET.
	again := lose(true, "set")
	h := lockcheck.Acquire(t, b, "k", ttl)
	lockcheck.Held(t, other, "k")
	lockcheck.Renew(t, b, h)
	lockcheck.Release(t, b, h)
	again()
	again = lose(false, "set")
	err := lockcheck.Fails(t.Context(), t, b, "k")
	assert.That(t, strings.Contains(err.Error(), "nothing is held now; if the server executes SET later"), "%v", err)
	again()
	// The lookup is lost as well.
	again, found := lose(true, "set"), lose(false, "get")
	err = lockcheck.Fails(t.Context(), t, b, "k")
	assert.That(t, strings.HasSuffix(err.Error(), "; nothing is held"), "%v", err)
	again()
	found()
	lockcheck.Free(t, b, "k")
	// An answer that Redis doesn't give isn't looked up.
	s.do(func() { s.instead["set"] = "+FINE\r\n" })
	s.asked("get")
	assert.Is(t, lockcheck.Fails(t.Context(), t, b, "k"), locking.ErrUnfit)
	assert.Equal(t, s.asked("get"), 0)
	s.do(func() { delete(s.instead, "set") })
	// Release repeats its request.
	for _, executed := range []bool{true, false} {
		h = lockcheck.Acquire(t, b, "k", ttl)
		lose(executed, "release")
		s.asked("release")
		err = b.Release(t.Context(), h)
		assert.That(t, err != nil && !errors.Is(err, locking.ErrLost) && s.asked("release") == 2, "%v", err)
		assert.That(t, strings.Contains(err.Error(), "isn't known whether it was released"), "%v", err)
		s.do(func() { clear(s.after); clear(s.instead); clear(s.keys) })
	}
	h = lockcheck.Acquire(t, b, "k", ttl)
	s.do(func() { s.instead["release"] = "$1\r\nx\r\n" })
	assert.Is(t, b.Release(t.Context(), h), locking.ErrUnfit)
	s.do(func() { clear(s.instead); clear(s.keys) })
	s.do(func() { s.once = true })
	for executed, says := range map[bool]string{true: "the answer to its release was lost", false: "<nil>"} {
		h = lockcheck.Acquire(t, b, "k", ttl)
		lose(executed, "release")
		err = b.Release(t.Context(), h)
		assert.That(t, strings.Contains(fmt.Sprint(err), says) && !errors.Is(err, locking.ErrLost), "executed %v: %v", executed, err)
		lockcheck.Free(t, b, "k")
	}
}

// TestOrphans: a Backend remembers the newest orphans, and takes the lock of one for its own.
func TestOrphans(t *testing.T) {
	s := newSmall(t)
	b := s.client()
	var all []locking.Handle
	for range maxOrphans + 1 {
		all = append(all, locking.NewHandle("k", ttl))
		b.addOrphan(all[len(all)-1])
	}
	oldest, newest := all[0], all[len(all)-1]
	hold := func(token string) { s.do(func() { s.keys["bext:lock:k"] = value{text: token} }) }
	hold(oldest.Token())
	lockcheck.Held(t, b, "k")
	hold(newest.Token())
	h := lockcheck.Acquire(t, b, "k", ttl)
	assert.That(t, h != newest, "the orphan's handle was returned")
	lockcheck.Release(t, b, h)
}

// TestQuiet: after the server has refused a note, none is sent or read.
func TestQuiet(t *testing.T) {
	for _, refusal := range []string{"-NOPERM no\r\n", "-CROSSSLOT no\r\n", "-ERR unknown command 'EVAL'\r\n"} {
		s := newSmall(t)
		b := s.client()
		s.do(func() { s.instead["note"] = refusal })
		h := lockcheck.Acquire(t, b, "k", ttl)
		assert.Equal(t, s.asked("note"), 1)
		lockcheck.Renew(t, b, h)
		lockcheck.Seen(t, b, "k")
		s.do(func() {
			assert.That(t, !slices.Contains(s.sent, "note") && !slices.Contains(s.sent, "get note"), "%s: %q", refusal, s.sent)
		})
		lockcheck.Release(t, b, h)
	}
}

// TestExamineReads: Examine reads the settings of Redis and of a server that calls itself otherwise, and fails if one
// command isn't answered.
func TestExamineReads(t *testing.T) {
	s := newSmall(t)
	b := s.client()
	found := func() (all string) {
		t.Helper()
		findings, err := b.Examine(t.Context())
		assert.OK(t, err)
		for _, f := range findings {
			all += fmt.Sprintf("%s: %s\n", f.What, f.Found)
		}
		return all
	}
	const settings = "role:master\r\nconnected_slaves:0\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\naof_enabled:1\r\n"
	s.do(func() { s.info = "redis_version:7.0.15\r\n" + settings })
	all := found()
	for _, want := range []string{"server: Redis 7.0.15\n", "replication: master without replicas\n", "persistence: append-only file, appendfsync always\n", "scripts: EVAL works\n"} {
		assert.That(t, strings.Contains(all, want), "no %q: %s", want, all)
	}
	s.do(func() { s.info = "redis_version:7.2.4\r\nserver_name:valkey\r\nvalkey_version:8.0.1\r\n" + settings })
	assert.That(t, strings.Contains(found(), "server: valkey 8.0.1\n"), "%s", found())
	s.do(func() { s.instead["info"] = "-NOPERM no info\r\n" })
	assert.That(t, strings.Contains(found(), "settings: the server refuses INFO: NOPERM no info"), "%s", found())
	s.do(func() { clear(s.instead); s.instead["time"] = closing })
	_, err := b.Examine(context.Background())
	assert.That(t, err != nil && strings.Contains(err.Error(), "it wasn't examined"), "%v", err)
}
