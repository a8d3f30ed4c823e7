package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/repolock/repolock/replock"
)

// outerVariable names the locks that the command runs under, the innermost last, as
// ID:PLACE. It is for a repolock that the command runs.
const outerVariable = "REPOLOCK_OUTER"

func outer() []string { return strings.Fields(os.Getenv(outerVariable)) }

// place tells the lock of one repository and name from others.
func (g global) place() string {
	sum := sha256.Sum256([]byte(redact(g.Repo) + "\x00" + g.Name))
	return hex.EncodeToString(sum[:8])
}

// under is what the environment says of a lock to those who run under it.
func (g global) under(id, mode string, fence uint64) []string {
	env := []string{
		"REPOLOCK_HELD=1", "REPOLOCK_REPO=" + redact(g.Repo), "REPOLOCK_MODE=" + mode, "REPOLOCK_ID=" + id,
		outerVariable + "=" + strings.Join(append(outer(), id+":"+g.place()), " "),
	}
	if fence != 0 {
		env = append(env, "REPOLOCK_FENCE="+strconv.FormatUint(fence, 10))
	}
	return env
}

// ownOuter is one of the holders whom this process would wait for in vain, since it runs
// under their lock, or they wait for the one that it runs under.
func (g global) ownOuter(holders []replock.Info) (replock.Info, bool) {
	var ids []string
	same := false
	for _, o := range outer() {
		id, place, _ := strings.Cut(o, ":")
		ids = append(ids, id)
		same = same || place == g.place()
	}
	i := slices.IndexFunc(holders, func(h replock.Info) bool {
		ours := h.ID != "" && slices.Contains(ids, h.ID) || h.AcquiredID != "" && slices.Contains(ids, h.AcquiredID)
		return ours || same && h.State == "waiting"
	})
	if i < 0 {
		return replock.Info{}, false
	}
	return holders[i], true
}

// errNested ends a wait that would never end.
var errNested = errors.New("the lock that this command runs under is in the way")
