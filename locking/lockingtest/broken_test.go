package lockingtest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// brokenEnv names the broken backend that this process is to test.
const brokenEnv = "REPOLOCK_TEST_BROKEN"

// broken are backends that break the contract, each in one way, and the subtest that must fail.
// The environment has the name of one.
var broken = map[string]struct {
	rule string
	make func(*table) locking.Backend
}{
	"nothing":            {"", func(b *table) locking.Backend { return b }},
	"nothing, no expiry": {"", func(b *table) locking.Backend { b.forever = true; return b }},
	"closed":             {"a_free_lock_is_acquired", func(b *table) locking.Backend { return &closed{b} }},
	"fails":              {"contention_is_no_error", func(b *table) locking.Backend { return &fails{b} }},
	"reentrant":          {"contention_is_no_error", func(b *table) locking.Backend { return &reentrant{table: b} }},
	"one key":            {"keys_are_independent", func(b *table) locking.Backend { return &oneKey{b} }},
	"any key":            {"bad_keys_are_ErrKey", func(b *table) locking.Backend { return &anyKey{b} }},
	"one token":          {"a_handle_has_its_key_and_ttl_and_a_token_of_its_own", func(b *table) locking.Backend { return &oneToken{table: b} }},
	"keeps":              {"release_frees_at_once", func(b *table) locking.Backend { return &keeps{b} }},
	"releases twice":     {"double_release_is_ErrLost", func(b *table) locking.Backend { return &releasesTwice{b} }},
	"zero":               {"a_zero_handle_is_ErrLost", func(b *table) locking.Backend { return &zero{b} }},
	"renews any":         {"a_stale_handle_never_renews", func(b *table) locking.Backend { return &renewsAny{b} }},
	"deletes":            {"a_stale_handle_never_releases", func(b *table) locking.Backend { return &deletes{b} }},
	"deletes silently":   {"a_stale_handle_never_releases", func(b *table) locking.Backend { return &deletesSilently{b} }},
	"no context":         {"an_ended_context_acquires_nothing", func(b *table) locking.Backend { return &noContext{b} }},
	"gives up":           {"an_ended_context_loses_no_lock", func(b *table) locking.Backend { return &givesUp{b} }},
	"leaves":             {"a_context_that_ends_meanwhile_leaves_nothing", func(b *table) locking.Backend { b.forever = true; return &leaves{b} }},
	"short":              {"a_lock_lasts_for_its_ttl", func(b *table) locking.Backend { return &short{b} }},
	"for ever":           {"expiry_frees", func(b *table) locking.Backend { b.forever = true; return b }},
	"no extension":       {"renew_extends", func(b *table) locking.Backend { return &noExtension{b} }},
	"revives":            {"an_expired_handle_is_ErrLost", func(b *table) locking.Backend { return &revives{b} }},
	"sweeps all":         {"cleanup_frees_no_held_lock", func(b *table) locking.Backend { return &sweepsAll{b} }},
	"shows":              {"inspect_shows_a_held_lock_alone", func(b *table) locking.Backend { return &shows{b} }},
	"breaks any":         {"break_removes_only_what_was_seen", func(b *table) locking.Backend { return &breaksAny{b} }},
	"racy":               {"a_round_has_one_winner", func(b *table) locking.Backend { return &racy{b} }},
	"racy release":       {"never_two_holders", func(b *table) locking.Backend { return &racyRelease{b} }},
}

// table keeps the contract. Its clock is moved by the test.
type table struct {
	mu      sync.Mutex
	now     time.Duration
	locks   map[string]entry
	forever bool
}

type entry struct {
	locking.Handle
	at, until time.Duration
}

func (b *table) held(key string) (entry, bool) {
	e, ok := b.locks[key]
	return e, ok && (b.forever || b.now < e.until)
}

func (b *table) TryLock(ctx context.Context, key string, ttl time.Duration) (h locking.Handle, ok bool, err error) {
	if strings.Contains(key, " ") {
		return h, false, locking.ErrKey
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, held := b.held(key); held || ctx.Err() != nil {
		return h, false, ctx.Err()
	}
	h = locking.NewHandle(key, ttl)
	b.put(h)
	return h, true, nil
}

func (b *table) put(h locking.Handle) {
	b.now++ // no two locks are acquired at the same time
	b.locks[h.Key()] = entry{h, b.now, b.now + h.TTL()}
}

func (b *table) Renew(ctx context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(h.Key())
	if ctx.Err() != nil {
		return ctx.Err()
	}
	if !held || e.Handle != h {
		return locking.ErrLost
	}
	e.until = b.now + h.TTL()
	b.locks[h.Key()] = e
	return nil
}

func (b *table) Release(_ context.Context, h locking.Handle) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if e, held := b.held(h.Key()); !held || e.Handle != h {
		return locking.ErrLost
	}
	delete(b.locks, h.Key())
	return nil
}

func (b *table) Cleanup(context.Context) error { return nil }

func (b *table) Inspect(_ context.Context, key string) (*locking.Info, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(key)
	if !held {
		return nil, nil
	}
	return &locking.Info{Key: key, Acquired: time.Unix(0, int64(e.at))}, nil
}

func (b *table) Break(_ context.Context, seen *locking.Info, stale bool) (bool, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	e, held := b.held(seen.Key)
	if !held || stale || int64(e.at) != seen.Acquired.UnixNano() {
		return false, nil
	}
	delete(b.locks, seen.Key)
	return true, nil
}

// remove deletes the lock of a key with any token.
func (b *table) remove(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.locks, key)
}

func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

// TestBroken runs the suite on backends that break the contract. Each runs in a process of its
// own, since the suite must fail there, and must neither hang nor panic.
func TestBroken(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		b := &table{locks: make(map[string]entry)}
		lockingtest.Run(t, lockingtest.Config{
			New: func(*testing.T) locking.Backend { return broken[name].make(b) },
			TTL: time.Minute, Expires: name != "nothing, no expiry" && name != "leaves",
			Advance: func(d time.Duration) { b.mu.Lock(); b.now += d; b.mu.Unlock() },
			BadKeys: []string{"bad key"},
			Limit:   limit(name),
		})
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestBroken$", "-test.timeout=2m")
			cmd.Env = append(os.Environ(), brokenEnv+"="+name)
			out, err := cmd.CombinedOutput()
			noticed := bytes.Contains(out, []byte("--- FAIL: TestBroken/"+b.rule+" "))
			if bytes.Contains(out, []byte("panic: ")) || (err != nil) != (b.rule != "") || b.rule != "" && !noticed {
				t.Errorf("%q didn't notice: %v\n%s", b.rule, err, out)
			}
		})
	}
}

// limit is short if the suite must fail, and else one that only a hang reaches.
func limit(name string) time.Duration {
	if broken[name].rule == "" {
		return time.Minute
	}
	return time.Second
}

var errBusy = errors.New("busy")
