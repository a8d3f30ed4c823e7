package also

import (
	"strings"

	"github.com/repolock/repolock/replock"
)

// Hint says what to do about a lock that another holder has.
func Hint(url string, h replock.Info) string {
	kind, _, _ := strings.Cut(url, ":")
	switch {
	case h.Verdict == replock.Unreadable:
		return "if no operation is running, run repolock break-lock --also " + url
	case kind == "tower-fleet" && h.Verdict == replock.Stale:
		return "if its holder no longer runs, --force-lock steals it"
	case kind == "tower-fleet":
		return "--wait 1h waits until it is done; a crashed holder's lock is stale after its ttl, and --force-lock steals it then"
	case kind == "beads" && h.Verdict == replock.Stale:
		return "this file system has no flock, so a stale lock stays: repolock break-lock --dead --also " + url
	case kind == "beads":
		return "--wait 1h waits until it is done; the lock of a process that ends is free, if that ran on this machine"
	case kind == "postgres":
		return "--wait 1h waits until it is done; the server frees a crashed holder's lock"
	default:
		return "--wait 1h waits until it is done; a crashed holder's lock expires by itself"
	}
}
