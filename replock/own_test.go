package replock

import (
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/store"
)

// TestOwnByKey: the flag of the present attempt and the ticket are own by their keys, because proveFlag judges the flag,
// and a copy of this process shares the ticket. A flag of an earlier attempt and lock.exclusive are own only with the
// ETag of a put of ours.
func TestOwnByKey(t *testing.T) {
	do(t, func(t *testing.T, w *world) {
		q := w.machine().newQueue(t.Context(), Exclusive, "x", nil)
		earlier, err := q.newAttempt()
		assert.OK(t, err)
		a, err := q.newAttempt()
		assert.OK(t, err)
		a.ticket = "index/lock.intent/ticket"
		a.bodies.note(etagMark(earlier.flag.key, "sent"), 0)
		equal(t, "lock.exclusive before a look", a.owns(store.Object{Key: a.pointer.key, ETag: "sent"}), false)
		a.found(verdict.Findings{})
		equal(t, "lock.exclusive after a look without it", a.owns(store.Object{Key: a.pointer.key, ETag: "sent"}), false)
		a.found(verdict.Findings{Ours: &verdict.Entry{Object: store.Object{ETag: "sent"}}})
		for _, c := range []struct {
			key, etag string
			own       bool
		}{
			{a.flag.key, "another", true}, {a.flag.key, "", true}, {a.ticket, "another", true}, {a.ticket, "", true},
			{earlier.flag.key, "sent", true}, {earlier.flag.key, "another", false}, {earlier.flag.key, "", false},
			{a.pointer.key, "sent", true}, {a.pointer.key, "another", false}, {a.pointer.key, "", false},
			{"index/lock.shared/another", "sent", false},
		} {
			equal(t, c.key+" with the ETag "+c.etag+" is own", a.owns(store.Object{Key: c.key, ETag: c.etag}), c.own)
		}
	})
}
