package audit

import (
	"slices"

	"github.com/repolock/repolock/internal/text"
)

// Limits of texts in the log: Read must accept each line.
const (
	// maxText bounds a text of a holder, in bytes. Other clients' bodies have up to 64 KiB;
	// repolock's own texts are shorter than this.
	maxText = 1 << 10
	// maxOwn bounds the other texts of a record. An error can quote a holder's.
	maxOwn = 5 << 10
	// maxHolders is the number of holders that a record names.
	maxHolders = 16
)

// cut returns the record within these limits.
func (r Record) cut() Record {
	for _, s := range []*string{&r.LockPath, &r.Operation, &r.Actor, &r.Hostname, &r.HostID, &r.RequestID, &r.ResumedFrom, &r.Reason, &r.Error} {
		*s = text.Cut(*s, maxOwn)
	}
	if more := len(r.HeldBy) - maxHolders; more > 0 {
		r.HeldBy, r.HeldByMore = r.HeldBy[:maxHolders], more
	}
	r.HeldBy = slices.Clone(r.HeldBy) // don't change the caller's
	for i := range r.HeldBy {
		h := &r.HeldBy[i]
		for _, s := range []*string{&h.RequestID, &h.Actor, &h.Intent, &h.Holder, &h.Mode, &h.State} {
			*s = text.Cut(*s, maxText)
		}
	}
	return r
}
