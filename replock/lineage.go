package replock

import (
	"cmp"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/store"
)

// lineage has the facts that we know about the versions of a lock's flag. Each version has another ETag.
type lineage struct {
	mu sync.Mutex
	// answered is the ETag of the last version whose put was answered.
	answered string
	// whole is the ETag of a version up to which the flag was stored without a gap, so no client has reaped it. It can be
	// an earlier version than the last one. wholeMod is its mod time in Unix nanoseconds; 0 if unknown.
	whole    string
	wholeMod int64
	// mod and before are the mod times of the last version and of the flag before it, in Unix nanoseconds; 0 if unknown.
	// For the first version before is the mod time that its own attempt has seen.
	mod, before int64
}

// unbroken reports whether the flag was stored without a gap until a listing showed its version with this ETag and mod
// time. If the store has applied the put of that version twice, the flag might have been deleted between the two, and
// then has a later mod time. So before its mod time is known, a version is whole only if a condition keeps the store
// from applying its put twice.
func (v *lineage) unbroken(etag string, mod time.Time) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	return etag != "" && etag == v.whole && (v.wholeMod == 0 || v.wholeMod == mod.UnixNano())
}

// stored records the answer to a put that was sent once. replaced is the ETag of the version that the store replaced,
// if a condition proves that. before is the flag's last known mod time, if the mod time of the version before is
// unknown.
func (v *lineage) stored(etag, replaced string, before int64) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.answered, v.before, v.mod = etag, cmp.Or(v.mod, before), 0
	if replaced != "" && replaced == v.whole {
		v.whole, v.wholeMod = etag, 0
	}
}

// seen records the mod time of the last version, and of the whole one.
func (v *lineage) seen(etag string, mod time.Time) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if etag == v.answered {
		v.mod = mod.UnixNano()
	}
	if etag == v.whole {
		v.wholeMod = mod.UnixNano()
	}
}

// inTime reports whether the last version was stored before any other client can have judged the version before it
// stale, however the store rounds its times. Then the flag was stored without a gap, and the caller calls seen.
func (v *lineage) inTime(etag string, mod time.Time, ttl time.Duration) bool {
	v.mu.Lock()
	defer v.mu.Unlock()
	if etag == "" || etag != v.answered || v.before == 0 || mod.UnixNano()-v.before > int64(ttl-verdict.Margin) {
		return false
	}
	v.whole = etag
	return true
}

// trust records that the flag was stored without a gap until this version was listed, if it is the last one.
func (v *lineage) trust(seen *store.Object) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if seen.ETag == v.answered {
		v.whole, v.mod = seen.ETag, seen.ModTime.UnixNano()
		v.wholeMod = v.mod
	}
}

// second is a second flag of a held lock: docs/evidence/protocol.md, "A second flag". If the lease has ended on the
// store's clock, but not on ours, either this machine stood still or the store's clock was set forward. In the first
// case another client might be about to delete our flag, and a refresh might put it back. No clock can distinguish the
// two. So we put a second flag, under a new key. No other client can acquire while it is stored, except one that has
// looked before. Our next look shows that client's flag, or the client has deleted our old flag, or it has withdrawn.
type second struct {
	*attempt
	etag   string
	proven bool          // since the look after its put, nothing but this flag decides whether others have acquired
	until  time.Duration // when it can be deleted
}

// secondStays is how long a second flag stays. Another client can have sent a delete of our old flag that the store
// applies late. A client gives up a request after 19 s at most.
const secondStays = 30 * time.Second

// seconds are the second flags of a held lock.
type seconds struct {
	wanted atomic.Bool              // the next refresh must put a second flag first
	page   atomic.Pointer[pageTime] // the page that has shown the second flag after the last refresh under it
	mu     sync.Mutex               // guards the following
	now    *second                  // under which the flag is being refreshed, or nil
	left   []*second                // to be deleted
}

// errAged is returned instead of a put if the lease has ended on the store's clock.
var errAged = errors.New("by the store's clock the lease had ended before the refresh")

// stoodStillOr begins the reasons of losses that the store's clock shows.
const stoodStillOr = "by the store's clock the lease had ended: this machine stood still, or the store's clock was set forward; "
