package main

import (
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/store/open"
)

// claims are the variables by which a command is told that it has a lock, and which.
var claims = []string{"REPOLOCK_HELD", "REPOLOCK_MODE", "REPOLOCK_ID", "REPOLOCK_FENCE"}

// withoutVariables returns an environment without these variables.
func withoutVariables(env, names []string) []string {
	return slices.DeleteFunc(env, func(v string) bool {
		name, _, _ := strings.Cut(v, "=")
		return slices.Contains(names, name)
	})
}

// bareEnviron is the environment of a command without a lock. It claims no lock around us
// for the command, which can neither check nor release it by its token. outerVariable and
// nameVariable stay: a repolock that the command runs must not wait for a lock around it.
func bareEnviron() []string {
	env := withoutVariables(os.Environ(), append(slices.Clone(claims), "REPOLOCK_TOKEN"))
	for i, v := range env {
		// What no lock can be in may be a URL with credentials. It isn't removed, because
		// then the configuration file's repository would be meant.
		if repo, ok := strings.CutPrefix(v, "REPOLOCK_REPO="); ok && open.Check(repo) != nil {
			env[i] = "REPOLOCK_REPO="
		}
	}
	return env
}
