package audit

import (
	"slices"
	"strings"
)

// What others wrote is cut in the log: a line must stay one that Read takes.
const (
	// maxText is where a text of a holder is cut, in bytes. Other clients' bodies have up to
	// 64 KiB; what repolock writes itself is shorter than this.
	maxText = 1 << 10
	// maxOwn is where other texts of a record are cut. An error can quote a holder's.
	maxOwn = 5 << 10
	// maxHolders is how many holders a record names.
	maxHolders = 16
)

// cut returns a record without what is too long.
func (r Record) cut() Record {
	for _, s := range []*string{&r.LockPath, &r.Operation, &r.Actor, &r.Hostname, &r.HostID, &r.RequestID, &r.ResumedFrom, &r.Reason, &r.Error} {
		*s = cut(*s, maxOwn)
	}
	if more := len(r.HeldBy) - maxHolders; more > 0 {
		r.HeldBy, r.HeldByMore = r.HeldBy[:maxHolders], more
	}
	r.HeldBy = slices.Clone(r.HeldBy) // the caller's stay as they are
	for i := range r.HeldBy {
		h := &r.HeldBy[i]
		for _, s := range []*string{&h.RequestID, &h.Actor, &h.Intent, &h.Holder, &h.Mode, &h.State} {
			*s = cut(*s, maxText)
		}
	}
	return r
}

// cut shortens a text to so many bytes and an ellipsis, and leaves characters whole.
func cut(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "…"
}
