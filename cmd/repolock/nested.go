package main

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/keeper"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store/open"
)

// outerVariable names the locks that the command runs under, the innermost last, as
// ID:PLACE, or ID:PLACE:TOKEN if a keeper has it. It is for a repolock that the command
// runs.
const outerVariable = "REPOLOCK_OUTER"

// nameVariable is the name of the lock that the configuration file has for the repository:
// REPOLOCK_REPO, a URL, doesn't tell it.
const nameVariable = "REPOLOCK_NAME"

// outer leaves out what a keeper has released: a script's environment stays as it is.
func outer() []string {
	return slices.DeleteFunc(strings.Fields(os.Getenv(outerVariable)), func(o string) bool {
		parts := strings.SplitN(o, ":", 3)
		return len(parts) == 3 && keeper.Over(parts[2])
	})
}

// namedOuter is the lock's name that is meant beside a repository of the environment, if
// both are those of the lock that this process runs under, and "" else.
func namedOuter(repo string) string {
	name, all := os.Getenv(nameVariable), strings.Fields(os.Getenv(outerVariable))
	if name == "" || len(all) == 0 {
		return ""
	}
	if parts := strings.Split(all[len(all)-1], ":"); len(parts) < 2 || parts[1] != (global{Repo: repo, Name: name}).place() {
		return ""
	}
	return name
}

// place tells the lock of one repository and name from others.
func (g global) place() string {
	sum := sha256.Sum256([]byte(g.where() + "\x00" + g.Name))
	return hex.EncodeToString(sum[:8])
}

// where is the repository as it is called from any directory, without credentials.
func (g global) where() string {
	if l, err := open.Parse(g.Repo); err == nil && l.Scheme == "file" && !filepath.IsAbs(l.Path) {
		if path, err := filepath.Abs(l.Path); err == nil {
			return path
		}
	}
	return redact(g.Repo)
}

// under is what the environment says of a lock to those who run under it.
// token is its keeper's, or "".
func (g global) under(id, mode string, fence uint64, token string) []string {
	own := id + ":" + g.place()
	if token != "" {
		own += ":" + token
	}
	env := []string{
		"REPOLOCK_HELD=1", "REPOLOCK_REPO=" + g.where(), "REPOLOCK_MODE=" + mode, "REPOLOCK_ID=" + id,
		outerVariable + "=" + strings.Join(append(outer(), own), " "),
	}
	if fence != 0 {
		env = append(env, "REPOLOCK_FENCE="+strconv.FormatUint(fence, 10))
	}
	if g.listed != "" && g.listed == g.Name {
		env = append(env, nameVariable+"="+g.Name)
	}
	return env
}

// ownOuter is one of the holders whom this process would wait for in vain, since it runs
// under their lock, or they wait for the one that it runs under.
func (g global) ownOuter(holders []replock.Info) (replock.Info, bool) {
	var ids []string
	same := false
	for _, o := range outer() {
		parts := append(strings.Split(o, ":"), "")
		ids = append(ids, parts[0])
		same = same || parts[1] == g.place()
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
