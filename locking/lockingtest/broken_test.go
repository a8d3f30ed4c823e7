package lockingtest_test

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
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
	"nothing, remote":    {"", func(b *table) locking.Backend { return b }},
	"nothing, stolen":    {"", func(b *table) locking.Backend { return &patient{b} }},
	"nothing, waits":     {"", func(b *table) locking.Backend { b.bubble = true; return &waits{b} }},
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
	"gives up release":   {"a_release_with_an_ended_context_says_what_is_so", func(b *table) locking.Backend { return &givesUpRelease{b} }},
	"forgets":            {"a_release_with_an_ended_context_says_what_is_so", func(b *table) locking.Backend { return &forgets{table: b} }},
	"needs no theft":     {"expiry_frees", func(b *table) locking.Backend { return b }},
	"steals":             {"a_lock_lasts_for_its_ttl", func(b *table) locking.Backend { return &patient{b} }},
	"counts":             {"a_stale_handle_never_releases", func(b *table) locking.Backend { return &counts{table: b, from: here} }},
	"shows":              {"inspect_shows_a_held_lock_alone", func(b *table) locking.Backend { return &shows{b} }},
	"no revision":        {"inspect_shows_a_held_lock_alone", func(b *table) locking.Backend { return &revises{b, func(locking.Handle, int) string { return "" }} }},
	"one revision":       {"each_holder_has_a_revision_of_its_own", func(b *table) locking.Backend { return &revises{b, func(locking.Handle, int) string { return "1" }} }},
	"shaky revision": {"each_holder_has_a_revision_of_its_own", func(b *table) locking.Backend {
		return &revises{b, func(_ locking.Handle, n int) string { return fmt.Sprint(n) }}
	}},
	"shows the token": {"each_holder_has_a_revision_of_its_own", func(b *table) locking.Backend {
		return &revises{b, func(h locking.Handle, _ int) string { return "token " + h.Token() }}
	}},
	"breaks any":      {"break_removes_only_what_was_seen", func(b *table) locking.Backend { return &breaksAny{b} }},
	"breaks by key":   {"break_removes_only_what_was_seen", func(b *table) locking.Backend { return &breaksByTime{b, true} }},
	"breaks by time":  {"break_removes_only_what_was_seen", func(b *table) locking.Backend { return &breaksByTime{b, false} }},
	"resumes nothing": {"resume_restores_no_lock_that_another_had", func(b *table) locking.Backend { return &resumes{b, func(locking.Handle) bool { return false }} }},
	"resumes any":     {"resume_restores_no_lock_that_another_had", func(b *table) locking.Backend { return &resumes{b, func(locking.Handle) bool { return true }} }},
	"resumes its own": {"resume_restores_no_lock_that_another_had", func(b *table) locking.Backend { return &resumes{b, b.isFreeOr} }},
	"finds nothing":   {"examine_changes_nothing", func(b *table) locking.Backend { return &finds{table: b} }},
	"finds without word": {"examine_changes_nothing", func(b *table) locking.Backend {
		return &finds{b, []locking.Finding{{What: "x", Found: "y", Verdict: locking.Bad}}, false}
	}},
	"finds and writes": {"examine_changes_nothing", func(b *table) locking.Backend { return &finds{b, []locking.Finding{{What: "x", Found: "y"}}, true} }},
	"racy":             {"a_round_has_one_winner", func(b *table) locking.Backend { return &racy{b} }},
	"racy release":     {"never_two_holders", func(b *table) locking.Backend { return &racyRelease{b} }},
}

// TestBroken runs the suite on backends that break the contract. Each runs in a process of its
// own, since the suite must fail there, and must neither hang nor panic.
func TestBroken(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		runBroken(t, name)
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
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

// TestEachRuleIsBroken: each rule of the suite has a backend that breaks it.
func TestEachRuleIsBroken(t *testing.T) {
	breaks := make(map[string]bool)
	for _, b := range broken {
		breaks[b.rule] = true
	}
	for _, rule := range lockingtest.Rules() {
		if !breaks[rule] {
			t.Errorf("no backend breaks %s", rule)
		}
	}
}

// runBroken runs the suite on one of them.
func runBroken(t *testing.T, name string) {
	b := &table{locks: make(map[string]entry)}
	c := lockingtest.Config{
		New: func(*testing.T) locking.Backend { return broken[name].make(b) },
		TTL: time.Minute, Expires: name != "nothing, no expiry" && name != "leaves",
		Advance: func(d time.Duration) { b.mu.Lock(); b.now += d; b.mu.Unlock() },
		BadKeys: []string{"bad key"},
		Limit:   limit(name),
	}
	switch name {
	case "nothing, remote":
		c.Other = func(t *testing.T) locking.Backend { return served(t, b) }
	case "counts":
		c.Other = func(t *testing.T) locking.Backend {
			here.Store(0) // for each subtest
			there.Store(0)
			return served(t, &counts{table: b, from: there})
		}
	case "nothing, stolen", "needs no theft":
		c.Steal = func(*testing.T) locking.Backend { return b }
	case "steals":
		c.Steal = func(*testing.T) locking.Backend { return &stealsLive{b} }
	case "nothing, waits":
		c.Bubble, c.Advance = true, nil
	}
	lockingtest.Run(t, c)
}

// served returns a client that is served as one in another process is.
func served(t *testing.T, b locking.Backend) locking.Backend {
	requests, in := io.Pipe()
	answers, out := io.Pipe()
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	go func() { _ = lockingtest.Serve(b, requests, out) }()
	return lockingtest.Connect(answers, in)
}

// limit is short if the suite must fail, and else one that only a hang reaches.
func limit(name string) time.Duration {
	if broken[name].rule == "" {
		return 10 * time.Minute // a hang
	}
	return time.Second
}
