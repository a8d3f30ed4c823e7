package session

import (
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/replock"
)

// outerVariable names the locks that this process runs under, the innermost last. Each is
// ID:PLACE, or ID:PLACE:TOKEN if a keeper holds it.
const outerVariable = "REPOLOCK_OUTER"

// nameVariable is the name of the lock in the repository of REPOLOCK_REPO, if the
// configuration file has one for it: the URL doesn't contain it.
const nameVariable = "REPOLOCK_NAME"

// outerLock is a lock that this process runs under.
type outerLock struct{ id, place, token string }

func (o outerLock) String() string {
	if o.token == "" {
		return o.id + ":" + o.place
	}
	return o.id + ":" + o.place + ":" + o.token
}

// outerLocks returns the locks that outerVariable names. A keeper can have released some.
func outerLocks() (locks []outerLock) {
	for o := range strings.FieldsSeq(os.Getenv(outerVariable)) {
		parts := append(strings.SplitN(o, ":", 3), "", "")
		locks = append(locks, outerLock{parts[0], parts[1], parts[2]})
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
	return slices.ContainsFunc(holders, func(h replock.Info) bool {
		return under(h.ID) || under(h.AcquiredID) || same && h.State == "waiting"
	})
}
