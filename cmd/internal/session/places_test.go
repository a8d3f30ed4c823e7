package session

import (
	"context"
	"errors"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/replock"
)

// refusing is a Locker whose lock another holder has.
type refusing struct{ err error }

func (r refusing) Acquire(context.Context, func(events.Event)) (Lock, error) { return nil, r.err }
func (refusing) Flush(context.Context)                                       {}
func (refusing) Answered() bool                                              { return true }

// TestRefusalNamesItsPlace: of several locks, the refusal names the place of the one that is
// held.
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
		h := newHolder(t, refusing{c.err}, &recorder{})
		h.Place, h.Others, h.HeldCode = first, []Place{second}, 3
		_, err := h.acquire(t.Context())
		var got HeldError
		if !errors.As(err, &got) || got.Place != c.want || got.ExitCode != 3 || !strings.Contains(err.Error(), c.want.Where()) {
			t.Errorf("%v", err)
		}
	}
}

// TestEnvironOfSeveral: a command gets the repository that its lock is of, and all places are
// outer ones for a repolock in it, that of the repository innermost.
func TestEnvironOfSeveral(t *testing.T) {
	repo, redis, beads := Place{Repo: "s3://bucket/x"}, Place{URL: "redis://host:6379/0?key=k", Name: "k"}, Place{URL: "beads:/b/.beads"}
	env := Environ([]Place{repo, redis, beads}, []string{"aa", "bb", "cc"}, "exclusive", 7, "")
	for _, want := range []string{
		"REPOLOCK_HELD=1", "REPOLOCK_REPO=s3://bucket/x", "REPOLOCK_MODE=exclusive", "REPOLOCK_ID=aa", "REPOLOCK_FENCE=7",
		outerVariable + "=cc:" + beads.ID() + " bb:" + redis.ID() + " aa:" + repo.ID(),
	} {
		if !slices.Contains(env, want) {
			t.Errorf("%s is missing in %q", want, env)
		}
	}
	for _, alone := range [][]Place{{redis, beads}, {{Repo: "/srv/a", Name: "n", URL: "repo:/srv/a#n"}, redis}} {
		env = Environ(alone, []string{"aa", "bb"}, "exclusive", 0, "token")
		if slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, "REPOLOCK_REPO=") }) || !slices.Contains(Unset(env), "REPOLOCK_REPO") {
			t.Errorf("without a repository: %q", env)
		}
	}
	t.Setenv(outerVariable, "bb:place")
	env = Environ([]Place{redis}, []string{"aa"}, "exclusive", 0, "token")
	if want := outerVariable + "=bb:place aa:" + redis.ID() + ":token"; !slices.Contains(env, want) {
		t.Errorf("under another lock: %q", env)
	}
}

// TestOwnLocksOfASet: each lock that this process runs under is known as its own.
func TestOwnLocksOfASet(t *testing.T) {
	repo, redis, beads := Place{Repo: "/srv/a"}, Place{URL: "redis://host:6379/0?key=k"}, Place{URL: "beads:/b/.beads"}
	for _, v := range Environ([]Place{repo, redis}, []string{"aa", "bb"}, "exclusive", 0, "") {
		if text, ok := strings.CutPrefix(v, outerVariable+"="); ok {
			t.Setenv(outerVariable, text)
		}
	}
	strange := []replock.Info{{ID: "another system's id"}}
	if !redis.anyOwn(strange) || beads.anyOwn(strange) || repo.anyOwn(strange) || !repo.anyOwn([]replock.Info{{ID: "aa"}}) {
		t.Errorf("redis %t, beads %t, repository %t", redis.anyOwn(strange), beads.anyOwn(strange), repo.anyOwn(strange))
	}
}

// TestNoPasswordInEnviron: no command gets the passwords of locks, with a lock or without one.
func TestNoPasswordInEnviron(t *testing.T) {
	if len(Passwords) < 2 {
		t.Fatal(Passwords)
	}
	for _, name := range Passwords {
		t.Setenv(name, "hunter2")
	}
	t.Setenv("UNRELATED", "stays")
	r := Request{Others: []Place{{URL: "redis://host:6379/0?key=k"}}}
	for what, env := range map[string][]string{"locked": r.environ(fakeLock{}), "bare": bareEnviron()} {
		if strings.Contains(strings.Join(env, "\n"), "hunter2") || !slices.Contains(env, "UNRELATED=stays") {
			t.Errorf("%s: %q", what, env)
		}
	}
	if os.Getenv(Passwords[0]) == "" {
		t.Error("our own is gone")
	}
}

// TestPlaces: the repository's place is the first, if there is one.
func TestPlaces(t *testing.T) {
	repo, others := Place{Repo: "/srv/a"}, []Place{{URL: "beads:/b/.beads"}, {URL: "redis://h:6379/0?key=k"}}
	if got := (Request{Others: others}).Places(); !slices.Equal(got, others) {
		t.Errorf("alone: %v", got)
	}
	if got := (Request{Place: repo, Others: others}).Places(); !slices.Equal(got, append([]Place{repo}, others...)) {
		t.Errorf("together: %v", got)
	}
}
