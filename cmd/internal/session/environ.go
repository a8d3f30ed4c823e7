package session

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/lease"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// claims are the variables that say which lock a command has.
var claims = []string{"REPOLOCK_HELD", "REPOLOCK_MODE", "REPOLOCK_ID", "REPOLOCK_FENCE"}

// Passwords are the variables with the passwords of locks. No command gets them.
var Passwords = []string{"REPOLOCK_REDIS_PASSWORD", "REPOLOCK_POSTGRES_PASSWORD"}

// Environ returns the variables for work under the locks with these ids, at these places. They
// contain no credentials. The token is the keeper's, or "".
func Environ(places []Place, ids []string, mode string, fence uint64, token string) []string {
	var outer []string
	for _, o := range heldOuterLocks() {
		outer = append(outer, o.text)
	}
	for i, p := range slices.Backward(places) { // the repository's is the innermost
		outer = append(outer, strings.TrimSuffix(ids[i]+":"+p.ID()+":"+token, ":"))
	}
	p := places[0]
	env := []string{"REPOLOCK_HELD=1"}
	if p.URL == "" { // it is the repository that a repolock in the command means
		env = append(env, "REPOLOCK_REPO="+p.Where())
	}
	env = append(env, "REPOLOCK_MODE="+mode, "REPOLOCK_ID="+ids[0], outerVariable+"="+strings.Join(outer, " "))
	if fence != 0 {
		env = append(env, "REPOLOCK_FENCE="+strconv.FormatUint(fence, 10))
	}
	if p.Listed != "" && p.Listed == p.Name {
		env = append(env, nameVariable+"="+p.Name)
	}
	return env
}

// Unset returns the variables of a lock around this process that Environ doesn't replace.
func Unset(env []string) (names []string) {
	for _, name := range []string{"REPOLOCK_FENCE", "REPOLOCK_REPO", nameVariable} {
		if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			names = append(names, name)
		}
	}
	return names
}

// environ is the environment of a command under a lock. A repolock around this one has set
// the same variables.
func (r Request) environ(lock *lease.Set) []string {
	env := withoutVariables(os.Environ(), slices.Concat(claims, Passwords, []string{"REPOLOCK_REPO", outerVariable, nameVariable}))
	return append(env, Environ(r.Places(), lock.IDs(), mode(lock).String(), lock.About().Fence, "")...)
}

func withoutVariables(env, names []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}

// bareEnviron is the environment of a command without a lock. The command can't check or
// release a lock around us, so no variable claims that lock. outerVariable and
// nameVariable stay: a repolock that the command runs must not wait for a lock around it.
func bareEnviron() []string {
	env := withoutVariables(os.Environ(), slices.Concat(claims, Passwords, []string{"REPOLOCK_TOKEN"}))
	for i, v := range env {
		// A value that is no repository might be a URL with credentials. Don't remove the
		// variable: without it the configuration file's repository is meant.
		if repo, ok := strings.CutPrefix(v, "REPOLOCK_REPO="); ok && open.Check(repo) != nil {
			env[i] = "REPOLOCK_REPO="
		}
	}
	return env
}

// outerVariable names the locks that this process runs under, the innermost last. Each is
// ID:PLACE, or ID:PLACE:TOKEN if a keeper holds it.
const outerVariable = "REPOLOCK_OUTER"

// nameVariable is the name of the lock in the repository of REPOLOCK_REPO, if the
// configuration file has one for it: the URL doesn't contain it.
const nameVariable = "REPOLOCK_NAME"

// outerLock is an entry of outerVariable. A malformed one is passed on unchanged, and counts
// as held.
type outerLock struct{ text, id, place, token string }

// outerLocks returns the locks that outerVariable names. A keeper can have released some.
func outerLocks() (locks []outerLock) {
	for o := range strings.FieldsSeq(os.Getenv(outerVariable)) {
		parts := append(strings.SplitN(o, ":", 3), "", "")
		locks = append(locks, outerLock{o, parts[0], parts[1], parts[2]})
	}
	return locks
}

// heldOuterLocks leaves out the locks that a keeper has released: the environment of a
// script doesn't change.
func heldOuterLocks() []outerLock {
	return slices.DeleteFunc(outerLocks(), func(o outerLock) bool { return o.token != "" && daemon.Over(o.token) })
}

// NameOfOuter returns the lock's name of nameVariable if repo is the repository of the
// innermost lock that this process runs under, or "".
func NameOfOuter(repo string) string {
	name, all := os.Getenv(nameVariable), outerLocks()
	if name == "" || len(all) == 0 || all[len(all)-1].place != (Place{Repo: repo, Name: name}).ID() {
		return ""
	}
	return name
}

// anyOwn reports whether one of the holders can't release its lock before this process
// ends: we run under that lock, or its holder waits for the lock that we run under.
func (p Place) anyOwn(holders []replock.Info) bool {
	all := heldOuterLocks()
	under := func(id string) bool {
		return id != "" && slices.ContainsFunc(all, func(o outerLock) bool { return o.id == id })
	}
	id := p.ID()
	same := slices.ContainsFunc(all, func(o outerLock) bool { return o.place == id })
	if p.other() { // it has one holder, so that is us
		return same
	}
	return slices.ContainsFunc(holders, func(h replock.Info) bool {
		return under(h.ID) || under(h.AcquiredID) || same && h.State == "waiting"
	})
}
