package verdict

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// TestBoundsOfTheTimeSinceBoot: a time since boot that no clock shows isn't a witness, or says that the lock lasts. A
// watch ends such a lock nevertheless.
func TestBoundsOfTheTimeSinceBoot(t *testing.T) {
	const over = ttl + Margin + 1
	for since, none := range map[int64]bool{0: true, -1: true, math.MinInt64: true, 1: false, int64(seen): false, math.MaxInt64: false} {
		for _, wall := range []time.Duration{ttl, over} {
			for _, disk := range []bool{false, true} {
				e := lockOf(here)
				e.Lease.RefreshedBoot = since
				j := Judge{Self: here, Wall: func() time.Time { return wrote.Add(wall) }, StoreClock: true, MachineClock: disk}
				j.Judge(e, StoreTime{At: wrote.Add(over), Elapsed: seen}, seen)
				want := Doubtful
				if none && wall == over && !disk || since == 1 {
					want = Stale
				}
				assert.That(t, e.Verdict == want, "since boot %d, wall %v, on a disk: %v: verdict %d, %s", since, wall, disk, e.Verdict, e.Why)
				j.Judge(e, StoreTime{At: wrote.Add(over), Elapsed: seen}, seen+ttl)
				assert.That(t, e.Verdict == Stale, "watched: verdict %d, %s", e.Verdict, e.Why)
			}
		}
	}
	e := lockOf(far) // its clock since boot is another one
	e.Lease.RefreshedBoot = 1
	j := Judge{Self: here, Wall: func() time.Time { return wrote.Add(over) }, StoreClock: true, MachineClock: true}
	j.Judge(e, StoreTime{At: wrote.Add(over), Elapsed: seen}, seen)
	assert.Equal(t, e.Verdict, Doubtful)
}

// TestLongDead: an encrypted lock is long dead only by both clocks.
func TestLongDead(t *testing.T) {
	for _, c := range []struct {
		store, wall time.Duration
		want        bool
	}{{longDead + 1, longDead + 1, true}, {longDead + 1, longDead, false}, {longDead, longDead + 1, false}} {
		j := Judge{Wall: func() time.Time { return wrote.Add(c.wall) }}
		assert.Equal(t, j.longDead(lockOf(far), StoreTime{At: wrote.Add(c.store), Elapsed: seen}, seen), c.want)
	}
}

// TestVersions: an object is another version if its ETag, its mod time or its size is another one.
func TestVersions(t *testing.T) {
	o := store.Object{Key: "index/lock.intent/x", ETag: "1", Size: 9, ModTime: wrote}
	for what, change := range map[string]func(*store.Object){
		"etag": func(o *store.Object) { o.ETag = "2" }, "mod time": func(o *store.Object) { o.ModTime = wrote.Add(1) }, "size": func(o *store.Object) { o.Size++ },
	} {
		m, next := Memory{}, o
		e := m.See(o, wire.KindIntent, seen)
		change(&next)
		assert.That(t, m.See(next, wire.KindIntent, 2*seen) != e && m[o.Key].Since == 2*seen, "another %s is the same version", what)
		assert.That(t, m.See(next, wire.KindIntent, 3*seen).Since == 2*seen, "%s: seen again", what)
	}
}

// TestCarry: only the parsed body of a flag is carried to the next version, and its dates move with the mod time, if
// that is known.
func TestCarry(t *testing.T) {
	read := func(change func(*Entry)) *Entry {
		e := lockOf(far)
		change(e)
		return e
	}
	same := func(*Entry) {}
	for name, c := range map[string]struct {
		kind    wire.Kind
		was     *Entry
		mod     time.Time
		carried bool
		moved   time.Duration
	}{
		"a flag":             {wire.KindShared, read(same), wrote.Add(time.Second), true, time.Second},
		"a carried flag":     {wire.KindIntent, read(func(e *Entry) { e.Read, e.Carried = false, true }), wrote.Add(time.Second), true, time.Second},
		"lock.exclusive":     {wire.KindExclusive, read(same), wrote.Add(time.Second), false, 0},
		"one that is unread": {wire.KindShared, read(func(e *Entry) { e.Read = false }), wrote.Add(time.Second), false, 0},
		"an unreadable one":  {wire.KindShared, read(func(e *Entry) { e.Err = wire.ErrLarge }), wrote.Add(time.Second), false, 0},
		"undated":            {wire.KindShared, read(same), time.Time{}, true, 0},
		"undated before":     {wire.KindShared, read(func(e *Entry) { e.ModTime = time.Time{} }), wrote, true, 0},
	} {
		e := &Entry{Object: store.Object{Key: "x", ModTime: c.mod}, Kind: c.kind}
		e.carry(c.was)
		assert.Equal(t, e.Carried, c.carried, "%s", name)
		if c.carried {
			assert.That(t, e.Lease.Refreshed.Equal(wrote.Add(c.moved)) && e.Lease.Expires.Equal(wrote.Add(ttl+c.moved)), "%s: refreshed %v", name, e.Lease.Refreshed)
		}
	}
}

// TestWhatAnEntryIs: a ticket, a lock of this protocol, a shared lock, one whose ttl is known.
func TestWhatAnEntryIs(t *testing.T) {
	of := func(k wire.Kind, change func(*Entry)) *Entry {
		e := lockOf(far)
		e.Kind, e.Lease.State, e.Lease.TTL = k, wire.StateWaiting, time.Hour
		change(e)
		return e
	}
	same := func(*Entry) {}
	failed := func(e *Entry) { e.Err = wire.ErrEncrypted }
	unread := func(e *Entry) { e.Read = false }
	for name, c := range map[string]struct {
		e                     *Entry
		ticket, hasID, shared bool
		ttl                   time.Duration
	}{
		"a shared ticket":         {of(wire.KindShared, same), true, true, true, time.Hour},
		"an exclusive ticket":     {of(wire.KindIntent, same), true, true, false, time.Hour},
		"lock.exclusive":          {of(wire.KindExclusive, same), false, true, false, time.Hour},
		"held":                    {of(wire.KindIntent, func(e *Entry) { e.Lease.State = wire.StateHeld }), false, true, false, time.Hour},
		"encrypted":               {of(wire.KindIntent, failed), false, false, false, wire.ForeignTTL},
		"unread":                  {of(wire.KindIntent, unread), true, false, false, time.Hour},
		"carried":                 {of(wire.KindIntent, func(e *Entry) { e.Read, e.Carried = false, true }), true, true, false, time.Hour},
		"another client's":        {of(wire.KindIntent, func(e *Entry) { e.Lease.ID = "" }), true, false, false, time.Hour},
		"in place of lock.shared": {of(wire.KindOdd, func(e *Entry) { e.Key, e.Err = "index/lock.shared", wire.ErrNotFolder }), false, false, true, wire.ForeignTTL},
		"in place of lock.intent": {of(wire.KindOdd, func(e *Entry) { e.Key, e.Err = "index/lock.intent", wire.ErrNotFolder }), false, false, false, wire.ForeignTTL},
		"below lock.exclusive":    {of(wire.KindOdd, func(e *Entry) { e.Key, e.Err = "index/lock.exclusive/lock.shared", wire.ErrNotFile }), false, false, false, wire.ForeignTTL},
	} {
		e := c.e
		assert.That(t, e.IsTicket() == c.ticket && e.HasID() == c.hasID && e.Shared() == c.shared && e.TTL() == c.ttl,
			"%s: ticket %v, id %v, shared %v, ttl %v", name, e.IsTicket(), e.HasID(), e.Shared(), e.TTL())
	}
}

// TestAges: an age needs both dates. A temporary file is unfinished for a day, and as long as its age is unknown. A far
// date is young.
func TestAges(t *testing.T) {
	e := lockOf(far)
	for _, c := range []struct {
		mod   time.Time
		st    StoreTime
		known bool
	}{{wrote, StoreTime{At: wrote.Add(ttl), Elapsed: seen}, true}, {wrote, StoreTime{Elapsed: seen}, false}, {time.Time{}, StoreTime{At: wrote, Elapsed: seen}, false}} {
		e.ModTime = c.mod
		age, known := e.Age(c.st, seen)
		assert.That(t, known == c.known && (age == ttl) == known, "%v, %v", age, known)
	}
	for _, suffix := range []string{"", temporary} {
		e.Key, e.ModTime = "x"+suffix, wrote
		for age, want := range map[time.Duration]bool{abandoned: true, abandoned + 1: false} {
			assert.Equal(t, e.Unfinished(StoreTime{At: wrote.Add(age), Elapsed: seen}, seen), want && suffix != "", fmt.Sprint(suffix, age))
		}
		assert.Equal(t, e.Unfinished(StoreTime{}, seen), suffix != "", suffix)
	}
	e.ModTime = time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)
	age, _ := e.Age(StoreTime{At: wrote, Elapsed: seen}, seen)
	assert.That(t, age < 0 && !e.Unfinished(StoreTime{At: wrote, Elapsed: seen}, seen) == !strings.HasSuffix(e.Key, temporary), "%v", age)
}

// TestPages: which page of a listing a key belongs on.
func TestPages(t *testing.T) {
	page := store.Page{Objects: []store.Object{{Key: "b"}, {Key: "d"}}, Next: "more"}
	for key, want := range map[string]bool{"a": true, "b": true, "c": true, "d": true, "e": false} {
		o, ok := InPage(page, key)
		assert.That(t, ok == want && (o != nil) == (key == "b" || key == "d") && (o == nil || o.Key == key), "%s: %v, %v", key, o, ok)
	}
	assert.That(t, !covers(page, "d"), "d itself can be listed again on the next page")
	_, ok := InPage(store.Page{Next: "more"}, "a")
	assert.That(t, !ok, "an empty page that isn't the last")
	_, ok = InPage(store.Page{Objects: page.Objects}, "e")
	assert.That(t, ok, "the last page")
	m := Memory{"a": {}, "b": {}, "c": {}, "e": {}}
	m.Forget(page, "a")
	assert.That(t, len(m) == 3 && m["c"] == nil, "c is gone, e is on a later page, a on an earlier one: %v", m)

	var kept Bodies
	e := &Entry{Raw: make([]byte, MaxBodies)}
	kept.Add(e)
	assert.That(t, e.Raw != nil, "MaxBodies bytes are kept")
	kept.Add(&Entry{Raw: make([]byte, 1)})
	kept.Add(e)
	assert.That(t, e.Raw == nil, "more than MaxBodies bytes are kept")
}
