package lockingtest_test

import (
	"io"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/lockingtest"
)

// bugs are the ways in which a client breaks the contract, and the subtest that must fail. Those
// without one keep it.
var bugs = map[string]string{
	"":                   "",
	"no expiry":          "",
	"remote":             "",
	"stolen":             "",
	"bubble":             "",
	"closed":             "release_frees_at_once",
	"fails":              "contention_is_no_error",
	"reentrant":          "contention_is_no_error",
	"one key":            "keys_are_independent",
	"any key":            "bad_keys_are_ErrKey",
	"inspects any key":   "bad_keys_are_ErrKey",
	"breaks any key":     "bad_keys_are_ErrKey",
	"any ttl":            "a_ttl_is_positive",
	"watches the lost":   "a_lock_that_is_lost_stays_lost",
	"one token":          "a_handle_has_its_key_and_ttl_and_a_token_of_its_own",
	"keeps":              "release_frees_at_once",
	"releases twice":     "a_lock_that_is_lost_stays_lost",
	"zero":               "a_zero_handle_is_ErrLost",
	"renews any":         "a_lock_that_is_lost_stays_lost",
	"deletes":            "a_lock_that_is_lost_stays_lost",
	"deletes silently":   "a_lock_that_is_lost_stays_lost",
	"no context":         "an_ended_context_acquires_nothing",
	"gives up":           "an_ended_context_loses_no_lock",
	"tied":               "the_end_of_the_acquire's_context_loses_no_lock",
	"leaves":             "a_context_that_ends_meanwhile_leaves_nothing",
	"gives up release":   "a_release_with_an_ended_context_says_what_is_so",
	"forgets":            "a_release_with_an_ended_context_says_what_is_so",
	"short":              "a_lock_lasts_for_its_ttl",
	"steals":             "a_lock_lasts_for_its_ttl",
	"for ever":           "expiry_frees",
	"needs no theft":     "expiry_frees",
	"no extension":       "renew_extends",
	"revives":            "an_expired_handle_is_ErrLost",
	"sweeps all":         "cleanup_frees_no_held_lock",
	"remembers":          "a_lock_that_is_lost_stays_lost",
	"restores":           "a_lock_that_is_lost_stays_lost",
	"resumes gone":       "a_lock_that_is_lost_stays_lost",
	"trusts its release": "a_lock_that_is_lost_stays_lost",
	"renames the next":   "a_lock_that_is_lost_stays_lost",
	"hears nothing":      "a_lock_that_is_lost_stays_lost",
	"shows":              "inspect_shows_a_held_lock_alone",
	"no revision":        "inspect_shows_a_held_lock_alone",
	"one revision":       "each_holder_has_a_revision_of_its_own",
	"shaky revision":     "each_holder_has_a_revision_of_its_own",
	"shows the token":    "each_holder_has_a_revision_of_its_own",
	"breaks any":         "break_removes_only_what_was_seen",
	"breaks by key":      "break_removes_only_what_was_seen",
	"breaks by time":     "break_removes_only_what_was_seen",
	"resumes nothing":    "resume_restores_no_lock_that_another_had",
	"resumes any":        "a_lock_that_is_lost_stays_lost",
	"resumes its own":    "an_expired_handle_is_ErrLost",
	"finds nothing":      "examine_changes_nothing",
	"finds without word": "examine_changes_nothing",
	"finds and writes":   "examine_changes_nothing",
	"racy":               "a_round_has_one_winner",
	"racy release":       "never_two_holders",
}

// brokenEnv has another process run the suite on the bugs, since it must fail there.
const brokenEnv = "REPOLOCK_TEST_BROKEN"

// TestBroken runs the suite on clients that break the contract. It must neither hang nor panic. Each
// rule has a client that breaks it.
func TestBroken(t *testing.T) {
	if os.Getenv(brokenEnv) != "" {
		for bug := range bugs {
			t.Run(strings.ReplaceAll(bug, " ", "_")+"_", func(t *testing.T) {
				lockingtest.Run(t, config(bug))
			})
		}
		return
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestBroken$", "-test.v", "-test.timeout=15m")
	if testing.Short() {
		cmd.Args = append(cmd.Args, "-test.short")
	}
	cmd.Env = append(os.Environ(), brokenEnv+"=yes")
	raw, _ := cmd.CombinedOutput()
	out := string(raw)
	rules := make(map[string]bool)
	for bug, rule := range bugs {
		rules[rule] = true
		want := "--- PASS: TestBroken/" + strings.ReplaceAll(bug, " ", "_") + "_ ("
		if rule != "" {
			want = "--- FAIL: TestBroken/" + strings.ReplaceAll(bug, " ", "_") + "_/" + rule + " ("
		}
		assert.That(t, strings.Contains(out, want), "%q: there is no %q", bug, want)
	}
	for _, rule := range lockingtest.Rules() {
		assert.That(t, rules[rule], "no client breaks %s", rule)
	}
	assert.That(t, !t.Failed() && !strings.Contains(out, "panic: "), "%s", out)
}

// config is of the clients with a bug.
func config(bug string) lockingtest.Config {
	b := &table{locks: make(map[string]entry), watched: make(map[locking.Handle]chan struct{})}
	client := func(bug string) func(*testing.T) locking.Backend {
		return func(*testing.T) locking.Backend { return &buggy{table: b, bug: bug} }
	}
	c := lockingtest.Config{
		New: client(bug), TTL: time.Minute, Expires: true, BadKeys: []string{"bad key"},
		Advance: func(d time.Duration) { b.mu.Lock(); b.now += d; b.mu.Unlock() },
		Lose:    func(_ *testing.T, key string) { b.remove(key) },
		Notice:  time.Second,
		Limit:   10 * time.Minute, // a hang
	}
	switch bug {
	case "remote":
		c.Other = func(t *testing.T) locking.Backend { return served(t, client(bug)(t)) }
	case "stolen":
		c.New, c.Steal = client("patient"), client("")
	case "needs no theft":
		c.Steal = client("")
	case "steals":
		c.New, c.Steal = client("patient"), client("steals")
	case "bubble", "closed", "for ever", "forgets", "keeps", "resumes any", "resumes its own", "hears nothing", "watches the lost": // a wait for what doesn't come ends at once
		b.bubble, c.Bubble, c.Advance = true, true, nil
		b.forever = bug == "for ever"
	case "leaves":
		b.forever, c.Expires, c.Limit = true, false, 200*time.Millisecond // which it reaches
	case "no expiry":
		b.forever, c.Expires = true, false
	}
	return c
}

// served returns a client of b by way of Serve, as if b were in another process.
func served(t *testing.T, b locking.Backend) locking.Backend {
	requests, in := io.Pipe()
	answers, out := io.Pipe()
	t.Cleanup(func() { _, _ = in.Close(), out.Close() })
	go func() { _ = lockingtest.Serve(b, requests, out) }()
	return lockingtest.Connect(answers, in)
}
