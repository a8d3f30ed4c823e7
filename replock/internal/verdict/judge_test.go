package verdict

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock/internal/wire"
	"github.com/repolock/repolock/store"
)

// wrote is when the locks of these tests were refreshed, by every clock. seen is when a look first saw them, on
// this process's clock since boot.
var wrote = time.Date(2026, 3, 7, 9, 0, 0, 0, time.UTC)

const (
	ttl  = time.Minute
	seen = time.Hour
)

var (
	here  = identity.Process{HostID: "here", BootID: "b1", TimeNamespace: "t1"}
	far   = identity.Process{HostID: "far", BootID: "b2", TimeNamespace: "t1"}
	old   = identity.Process{HostID: "here", BootID: "b0", TimeNamespace: "t1"}
	where = map[string]identity.Process{"here": here, "far": far, "an earlier boot": old, "nowhere": {}}
)

// lockOf returns a lock that a process refreshed at wrote, and that a look saw at seen.
func lockOf(p identity.Process) *Entry {
	return &Entry{
		Object: store.Object{Key: "index/lock.shared/x", ModTime: wrote, Size: 1}, Kind: wire.KindShared, Since: seen, Read: true,
		Lease: wire.Decoded{Body: wire.Body{ID: "1", Process: p, State: wire.StateHeld}, Refreshed: wrote, Expires: wrote.Add(ttl), TTL: ttl},
	}
}

// TestVerdicts: each witness alone, both, and none, at the ends of what they say.
func TestVerdicts(t *testing.T) {
	const over = ttl + Margin + 1
	encrypted := func(e *Entry) { e.Err = wire.ErrEncrypted }
	boot := func(e *Entry) { e.Lease.RefreshedBoot = int64(seen - ttl - 1) } // over a ttl ago, on the clock since boot
	for name, c := range map[string]struct {
		of          string
		store, wall time.Duration // what these clocks say of the age
		watched     time.Duration
		change      func(*Entry)
		judge       func(*Judge)
		want        Verdict
		why         string
	}{
		"young":                                   {store: 0, wall: 0, want: Live},
		"at the end of the margin":                {store: ttl + Margin, wall: over, want: Live},
		"two clocks":                              {store: over, wall: ttl + 1, want: Stale},
		"the store's clock alone":                 {store: over, wall: ttl, want: Doubtful, why: "the store's clock says that it has expired, and this machine's clock (2026-03-07T09:01:00Z) doesn't"},
		"this machine's clock alone":              {store: 0, wall: 100 * time.Hour, want: Live},
		"watched for its ttl":                     {store: 0, wall: 0, watched: ttl, want: Stale},
		"watched for nearly its ttl":              {store: 0, wall: 0, watched: ttl - 1, want: Live},
		"refreshed while it was watched":          {store: over, wall: over, change: func(e *Entry) { e.Changed = true }, want: Live},
		"refreshed, and then watched for its ttl": {store: over, wall: over, watched: ttl, change: func(e *Entry) { e.Changed = true }, want: Stale},

		"no time of the store":                    {store: -1, wall: ttl, want: Live},
		"no time of the store, and this clock":    {store: -1, wall: over, want: Doubtful, why: "the store has no clock of its own to confirm it"},
		"a store's clock that isn't reliable":     {store: over, wall: over, judge: func(j *Judge) { j.StoreClock = false }, want: Doubtful, why: "no clock of its own"},
		"no mod time":                             {store: over, wall: over, change: func(e *Entry) { e.ModTime = time.Time{} }, want: Doubtful, why: "no clock of its own"},
		"the clock since boot, of the same boot":  {of: "here", store: over, wall: 0, change: boot, want: Stale},
		"the clock since boot, within the ttl":    {of: "here", store: over, wall: over, change: func(e *Entry) { e.Lease.RefreshedBoot = int64(seen - ttl) }, want: Doubtful, why: "the time since boot doesn't"},
		"the clock since boot of another machine": {of: "far", store: over, wall: 0, change: boot, want: Doubtful, why: "this machine's clock"},

		"emptied":                                {store: 0, wall: 0, change: func(e *Entry) { e.Err = wire.ErrEmptied }, want: Released},
		"damaged":                                {store: 1000 * over, wall: 1000 * over, watched: 1000 * ttl, change: func(e *Entry) { e.Err = wire.ErrLarge }, want: Unreadable, why: "larger than"},
		"encrypted, young":                       {store: 0, wall: 0, change: encrypted, want: Live},
		"encrypted, old":                         {store: over, wall: over, change: encrypted, want: Doubtful, why: "its body, which is encrypted, doesn't"},
		"encrypted, long dead":                   {store: longDead + 1, wall: longDead + 1, change: encrypted, want: Stale},
		"encrypted, long dead by one clock":      {store: longDead + 1, wall: longDead, change: encrypted, want: Doubtful, why: "encrypted"},
		"encrypted, no time of the store":        {store: -1, wall: over, change: encrypted, want: Doubtful, why: "its body is encrypted, and the store has no clock of its own"},
		"encrypted, watched for the default ttl": {store: 0, wall: 0, watched: wire.ForeignTTL, change: encrypted, want: Stale},

		"dated far ahead, long dead":                {store: longDead + 1, wall: longDead + 1, change: ahead(2*longDead + 2), want: Stale},
		"dated far ahead, not long dead":            {store: longDead, wall: longDead + 1, change: ahead(3 * longDead), want: Doubtful, why: "this machine's clock"},
		"dated far ahead, long dead by the store's": {store: longDead + 1, wall: longDead, change: ahead(3 * longDead), want: Doubtful, why: "this machine's clock"},
		"dated ahead, as no time zone explains":     {store: longDead + 1, wall: longDead + 1, change: ahead(2*longDead + 1), want: Doubtful, why: "this machine's clock"},
		"dated far ahead of this machine's clock":   {store: 3 * longDead, wall: longDead + 1, change: ahead(3 * longDead), want: Doubtful, why: "this machine's clock"},
		"dated far ahead of the store's clock":      {store: longDead + 1, wall: 2 * longDead, change: ahead(2*longDead + 2), want: Doubtful, why: "this machine's clock"},
		"dated far ahead, of the same boot":         {of: "here", store: longDead + 1, wall: longDead + 1, change: bootAhead, want: Doubtful, why: "the time since boot doesn't"},
		"dated far ahead, no time of the store":     {store: -1, wall: longDead + 1, change: ahead(3 * longDead), want: Live},
		"dated far ahead, on a local disk":          {of: "far", store: longDead + 1, wall: longDead + 1, change: ahead(3 * longDead), judge: onDisk, want: Doubtful, why: "no other clock"},
		"live, and the store was set right since":   {store: longDead + 30*time.Second, wall: longDead + 30*time.Second, change: ahead(longDead), want: Doubtful, why: "this machine's clock"},
		"the same, and its holder is an hour ahead": {store: longDead + 30*time.Second, wall: longDead + 30*time.Second, change: ahead(longDead + time.Hour), want: Doubtful, why: "this machine's clock"},
		"the same, and its holder is a day ahead":   {store: 1000 * longDead, wall: 1000 * longDead, change: ahead(1000*longDead + 24*time.Hour), want: Doubtful, why: "this machine's clock"},
		"a local disk":                          {of: "far", store: over, wall: over, judge: onDisk, want: Doubtful, why: "no other clock confirms that"},
		"a local disk, no time of the store":    {of: "far", store: -1, wall: ttl, judge: onDisk, want: Live},
		"a local disk, within the ttl":          {of: "far", store: ttl, wall: ttl, judge: onDisk, want: Live},
		"a local disk, the clock since boot":    {of: "here", store: over, wall: over, change: boot, judge: onDisk, want: Stale},
		"a local disk, from an earlier boot":    {of: "an earlier boot", store: over, wall: over, judge: onDisk, want: Stale},
		"a local disk, long dead":               {of: "far", store: longDead + 1, wall: longDead + 1, judge: onDisk, want: Doubtful, why: "no other clock"},
		"a local disk without boots":            {of: "nowhere", store: longDead, wall: longDead, judge: withoutBoots, want: Doubtful, why: "no other clock"},
		"a local disk without boots, long dead": {of: "nowhere", store: longDead + 1, wall: longDead + 1, judge: withoutBoots, want: Stale},
	} {
		now := seen + c.watched
		j := Judge{Self: here, Wall: func() time.Time { return wrote.Add(c.wall) }, StoreClock: true}
		var st StoreTime
		if c.store >= 0 {
			st = StoreTime{At: wrote.Add(c.store), Elapsed: now}
		}
		if c.judge != nil {
			c.judge(&j)
		}
		e := lockOf(where[c.of])
		if c.change != nil {
			c.change(e)
		}
		j.Judge(e, st, now)
		assert.That(t, e.Verdict == c.want && strings.Contains(e.Why, c.why) && (c.why != "") == (e.Why != ""), "%s: verdict %d, %q", name, e.Verdict, e.Why)
	}
}

// ahead dates the body later than its mod time.
func ahead(by time.Duration) func(*Entry) {
	return func(e *Entry) { e.Lease.Refreshed = wrote.Add(by) }
}

func bootAhead(e *Entry) {
	ahead(3 * longDead)(e)
	e.Lease.RefreshedBoot = int64(seen)
}

func onDisk(j *Judge) { j.MachineClock = true }

func withoutBoots(j *Judge) { j.MachineClock, j.Self = true, identity.Process{} }

// TestEndOf: when the last of the live locks is stale, or 0 if that isn't known.
func TestEndOf(t *testing.T) {
	const now = seen + 10*time.Second
	live := func(lasts time.Duration, change func(*Entry)) *Entry {
		e := lockOf(far)
		e.Verdict, e.Lease.TTL = Live, lasts
		change(e)
		return e
	}
	same := func(*Entry) {}
	j := Judge{StoreClock: true}
	f := func(live ...*Entry) Findings {
		return Findings{Live: live, Now: now, St: StoreTime{At: wrote.Add(30 * time.Second), Elapsed: now}}
	}
	const byAge = now + ttl + Margin - 30*time.Second + time.Millisecond
	for name, c := range map[string]struct {
		f    Findings
		want time.Duration
	}{
		"none":                {f(), 0},
		"by its age":          {f(live(ttl, same)), byAge},
		"the last":            {f(live(ttl, same), live(2*ttl, same)), byAge + ttl},
		"changed: by a watch": {f(live(ttl, func(e *Entry) { e.Changed = true })), seen + ttl},
		"doubtful":            {f(live(ttl, same), live(ttl, func(e *Entry) { e.Verdict = Doubtful })), 0},
		"encrypted":           {f(live(ttl, func(e *Entry) { e.Err = wire.ErrEncrypted })), 0},
	} {
		assert.Equal(t, j.EndOf(c.f), c.want, name)
	}
	assert.Equal(t, Judge{}.EndOf(f(live(ttl, same))), seen+ttl, "without the store's clock")
}

// TestMemory: an entry is the same while its object is, keeps a flag's parsed body when the object changes, and is
// forgotten when a page shows that it is gone.
func TestMemory(t *testing.T) {
	m := Memory{}
	o := store.Object{Key: "index/lock.shared/x", ETag: "1", Size: 9, ModTime: wrote}
	e := m.See(o, wire.KindShared, seen)
	assert.That(t, !e.Read && e.Since == seen && !e.Changed, "first: %+v", e)
	e.Decode(fmt.Appendf(nil, `{"id":"1","expires_at":%q}`, wrote.Add(ttl).Format(time.RFC3339)))
	assert.That(t, m.See(o, wire.KindShared, 2*seen) == e, "the same object is another entry")

	o.ETag, o.ModTime = "2", wrote.Add(time.Second)
	next := m.See(o, wire.KindShared, 2*seen)
	assert.That(t, next.Carried && !next.Read && next.Changed && next.Since == 2*seen && next.HasID(), "changed: %+v", next)
	assert.Equal(t, next.Lease.Refreshed, e.Lease.Refreshed.Add(time.Second), "the time of a carried body")

	m.See(store.Object{Key: "index/lock.shared/z", Size: 9}, wire.KindShared, seen)
	page := store.Page{Objects: []store.Object{{Key: "index/lock.shared/y"}}, Next: "more"}
	m.Forget(page, "index/lock.shared/x")
	assert.Equal(t, len(m), 2, "neither key is on the page")
	m.Forget(page, "")
	assert.That(t, len(m) == 1 && m["index/lock.shared/z"] != nil, "left: %v", m)

	for key, want := range map[string]error{"index/lock.shared": wire.ErrNotFolder, "index/lock.exclusive/": wire.ErrNotFile} {
		odd := m.See(store.Object{Key: key, Size: -1}, wire.KindOdd, seen)
		Judge{}.Judge(odd, StoreTime{}, seen)
		assert.That(t, odd.Err == want && odd.Verdict == Unreadable && odd.Shared() == (key == "index/lock.shared"), "%s: %v", key, odd.Err)
	}
	empty := m.See(store.Object{Key: "index/lock.intent/x"}, wire.KindIntent, seen)
	Judge{}.Judge(empty, StoreTime{}, seen)
	assert.That(t, empty.Verdict == Released && !empty.Shared(), "empty: %d", empty.Verdict)
}

// TestFindings: what conflicts, and which lock a waiter watches.
func TestFindings(t *testing.T) {
	st := StoreTime{At: wrote.Add(ttl), Elapsed: seen}
	f := Findings{St: st, Now: seen}
	add := func(key string, k wire.Kind, v Verdict, s wire.State) *Entry {
		e := lockOf(far)
		e.Key, e.Kind, e.Verdict, e.Lease.State = key, k, v, s
		f.Add(e)
		return e
	}
	add("index/lock.exclusive", wire.KindExclusive, Live, wire.StateHeld)
	holder := add("index/lock.shared/b", wire.KindShared, Doubtful, wire.StateHeld)
	add("index/lock.shared/a", wire.KindShared, Unreadable, "")
	assert.That(t, len(f.Live) == 2 && len(f.Doubtful) == 1 && len(f.Conflicts()) == 3, "%+v", f)
	assert.That(t, f.Blocker(nil) == holder, "the last flag: %+v", f.Blocker(nil))
	ticket := add("index/lock.intent/a", wire.KindIntent, Live, wire.StateWaiting)
	last := add("index/lock.intent/b", wire.KindIntent, Live, wire.StateWaiting)
	assert.That(t, f.Blocker(nil) == last, "the last ticket: %+v", f.Blocker(nil))
	assert.That(t, f.Blocker(map[string]string{last.Key: "2"}) == ticket, "a blocker that is gone: %+v", f.Blocker(map[string]string{last.Key: "2"}))

	var ahead []*Entry
	for _, place := range []string{"a", "b", "c", "d", "e"} {
		ahead = append(ahead, &Entry{Object: store.Object{Key: "index/lock.intent/" + place}, Marked: true})
	}
	for n, want := range []int{0, 0, 1, 1, 2, 2} {
		f.Ahead = ahead[:n]
		if n > 0 {
			assert.That(t, f.Blocker(nil) == ahead[want], "of %d waiters: %s", n, f.Blocker(nil).Key)
		}
	}
	gone := map[string]string{ahead[2].Key: "", ahead[3].Key: ""}
	assert.That(t, f.Blocker(gone) == ahead[4], "the tickets in the middle are gone: %+v", f.Blocker(gone))
	gone[ahead[4].Key], f.Ahead = "", ahead
	assert.That(t, f.Blocker(gone) == last, "no later ticket is left: %+v", f.Blocker(gone))
	f.Ahead = nil

	add("index/lock.exclusive", wire.KindExclusive, Released, "")
	add("index/lock.shared/c.tmp", wire.KindShared, Released, "") // perhaps unfinished
	assert.Equal(t, len(f.Released), 0)
	add("index/lock.shared/c", wire.KindShared, Released, "")
	assert.Equal(t, len(f.Released), 1)
	f.St.At = wrote.Add(abandoned + 1)
	add("index/lock.shared/d.tmp", wire.KindShared, Released, "")
	assert.Equal(t, len(f.Released), 2)

	young := lockOf(far)
	for age, want := range map[time.Duration]bool{wire.DefaultTTL - 1: true, wire.DefaultTTL: false} {
		f.St = StoreTime{At: wrote.Add(age), Elapsed: f.Now}
		assert.Equal(t, f.Young(young), want, age)
	}
	f.St = StoreTime{}
	assert.That(t, f.Young(young), "an unknown age isn't young")

	var kept Bodies
	for range 2 {
		young.Raw = make([]byte, MaxBodies/2+1)
		kept.Add(young)
	}
	assert.That(t, young.Raw == nil, "the bodies of a look aren't bounded")
}
