package session

import (
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// claims are the variables that describe a command's lock to it.
var claims = []string{"REPOLOCK_HELD", "REPOLOCK_MODE", "REPOLOCK_ID", "REPOLOCK_FENCE"}

// Passwords are the variables with the passwords of locks. repolock hides them from the command.
var Passwords = []string{"REPOLOCK_REDIS_PASSWORD", "REPOLOCK_POSTGRES_PASSWORD"}

// Variables are the variables that repolock sets for a command.
var Variables = append([]string{"REPOLOCK_REPO", "REPOLOCK_TOKEN", outerVariable, nameVariable}, claims...)

// Environ returns the variables for work under the locks at these places, with these ids. They
// contain no credentials. The token is the keeper's, or "".
func Environ(places []Place, ids []string, mode string, fence uint64, token string) []string {
	var outer []string
	for _, o := range heldOuterLocks() {
		outer = append(outer, o.text)
	}
	for i, p := range slices.Backward(places) { // the repository's lock is the innermost
		outer = append(outer, strings.TrimSuffix(ids[i]+":"+p.ID()+":"+token, ":"))
	}
	p := places[0]
	env := []string{"REPOLOCK_HELD=1"}
	if p.URL == "" { // a repolock in the command uses the same repository
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

// Unset returns the variables that describe a lock around this process, except for variables that env replaces.
func Unset(env []string) (names []string) {
	for _, name := range []string{"REPOLOCK_FENCE", "REPOLOCK_REPO", nameVariable} {
		if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
			names = append(names, name)
		}
	}
	return names
}

// environ is the environment of a command under the lock. It replaces the variables of a repolock around this
// one.
func (h *holder) environ() []string {
	env := withoutVariables(os.Environ(), slices.Concat(claims, Passwords, []string{"REPOLOCK_REPO", outerVariable, nameVariable}))
	return append(env, Environ(h.Places(), h.lock.IDs(), h.mode().String(), h.lock.About().Fence, "")...)
}

func withoutVariables(env, names []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}

// bareEnviron is the environment of a command without a lock. It has no claims to a lock around this process,
// because the command can't check or release that lock. outerVariable and nameVariable stay, because a repolock
// in the command must not wait for the lock around it.
func bareEnviron() []string {
	env := withoutVariables(os.Environ(), slices.Concat(claims, Passwords, []string{"REPOLOCK_TOKEN"}))
	for i, v := range env {
		// A value that is no repository might be a URL with credentials. Empty it: without the variable, a
		// repolock in the command would take the configuration file's repository.
		if repo, ok := strings.CutPrefix(v, "REPOLOCK_REPO="); ok && open.Check(repo) != nil {
			env[i] = "REPOLOCK_REPO="
		}
	}
	return env
}

// outerVariable has the locks that this process runs under, the innermost last. Each is
// ID:PLACE, or ID:PLACE:TOKEN if a keeper holds it.
const outerVariable = "REPOLOCK_OUTER"

// nameVariable has the lock's name in the repository of REPOLOCK_REPO, if the name is from the
// configuration file. The URL doesn't contain it.
const nameVariable = "REPOLOCK_NAME"

// outerLock is an entry of outerVariable. A malformed entry counts as held, and the command gets it
// unchanged.
type outerLock struct{ text, id, place, token string }

// outerLocks returns the entries of outerVariable. A keeper can have released some of these locks.
func outerLocks() (locks []outerLock) {
	for o := range strings.FieldsSeq(os.Getenv(outerVariable)) {
		parts := append(strings.SplitN(o, ":", 3), "", "")
		locks = append(locks, outerLock{o, parts[0], parts[1], parts[2]})
	}
	return locks
}

// heldOuterLocks returns outerLocks without the locks that a keeper has released. The entries of released locks
// stay in the environment of a script.
func heldOuterLocks() []outerLock {
	return slices.DeleteFunc(outerLocks(), func(o outerLock) bool { return o.token != "" && daemon.Over(o.token) })
}

// NameOfOuter returns the value of nameVariable if the innermost lock that this process runs under is in repo, or
// else "".
func NameOfOuter(repo string) string {
	name, all := os.Getenv(nameVariable), outerLocks()
	if name == "" || len(all) == 0 || all[len(all)-1].place != (Place{Repo: repo, Name: name}).ID() {
		return ""
	}
	return name
}

// anyOwn reports whether one of the holders can't release its lock before this process ends: this process runs
// under that lock, or the holder waits for the lock that this process runs under.
func (p Place) anyOwn(holders []replock.Info) bool {
	all := heldOuterLocks()
	under := func(id string) bool {
		return id != "" && slices.ContainsFunc(all, func(o outerLock) bool { return o.id == id })
	}
	id := p.ID()
	same := slices.ContainsFunc(all, func(o outerLock) bool { return o.place == id })
	if p.other() { // another system's lock has only one holder
		return same
	}
	return slices.ContainsFunc(holders, func(h replock.Info) bool {
		return under(h.ID) || under(h.AcquiredID) || same && h.State == "waiting"
	})
}
