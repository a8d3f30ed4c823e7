//go:build unix

package e2e

import "github.com/repolock/repolock/internal/identity"

// ended reports whether a process has ended. On a system without an init, as in a container, it can
// stay as a zombie.
func ended(pid int) bool {
	_, runs := identity.Of(pid)
	return !runs
}
