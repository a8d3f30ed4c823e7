package replock

import (
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/repolock/repolock/store"
)

// margin is added to a lease's end on the store's clock: S3 rounds mod times down to a second,
// and the clocks of a store's gateways differ a little.
const margin = 2 * time.Second

// storeTime is a lower bound of the store's clock. The zero value is unknown.
type storeTime struct {
	at      time.Time     // a reading of the store's clock,
	elapsed time.Duration // and of ours, not earlier
}

// when returns a lower bound of the store's clock at a reading of ours.
func (s storeTime) when(elapsed time.Duration) time.Time { return s.at.Add(elapsed - s.elapsed) }

func (s storeTime) known() bool { return !s.at.IsZero() }

// entry is a lock object of another client.
type entry struct {
	store.Object
	kind    kind
	read    bool // then the body says the following:
	raw     []byte
	lease   decoded
	err     error
	carried bool          // it wasn't read, and lease is what an earlier version said
	since   time.Duration // when it was first seen as it is now
	changed bool          // it was seen otherwise before
	shown   time.Duration // for a survey: when the request was sent that showed it

	verdict Verdict
	why     string
}

// mode returns the mode of the entry's lock.
func (e *entry) mode() Mode {
	if e.kind == kindShared {
		return Shared
	}
	return Exclusive
}

// memory has the entries of one acquire from look to look: their bodies while the ETag stays, and
// since when they are unchanged.
type memory map[string]*entry

// see returns the entry of an object that was listed in a request answered at the given time.
func (s memory) see(o store.Object, k kind, answered time.Duration) *entry {
	e, ok := s[o.Key]
	if was := e; !ok || e.ETag != o.ETag || !e.ModTime.Equal(o.ModTime) || e.Size != o.Size {
		e = &entry{Object: o, kind: k, since: answered, changed: ok}
		switch {
		case o.Size == 0: // which tells it without the body being read
			e.read, e.err = true, errReleased
		case k == kindOdd:
			e.read, e.err = true, errOdd
		case ok:
			e.carry(was)
		}
		s[o.Key] = e
	}
	return e
}

// forget drops what a page shows to be gone: what is put at its key later is another lock, and not
// the same one refreshed. after is the last key of the page before, if there is one.
func (s memory) forget(page store.Page, after string) {
	listed := map[string]bool{}
	for _, o := range page.Objects {
		listed[o.Key] = true
	}
	maps.DeleteFunc(s, func(key string, _ *entry) bool {
		return covers(page, key) && key > after && !listed[key]
	})
}

// carry takes over what the version before said: a refresh changes only the times of a flag.
func (e *entry) carry(was *entry) {
	if e.kind == kindExclusive || was.err != nil || !was.read && !was.carried {
		return
	}
	e.lease, e.carried = was.lease, true
	if !e.ModTime.IsZero() && !was.ModTime.IsZero() {
		later := e.ModTime.Sub(was.ModTime)
		e.lease.refreshed, e.lease.expires = e.lease.refreshed.Add(later), e.lease.expires.Add(later)
	}
}

// ttl returns how long the lock lasts after its last change.
func (e *entry) ttl() time.Duration {
	if e.err != nil {
		return foreignTTL
	}
	return e.lease.ttl
}

// judge sets the verdict of an entry whose body was read: docs/protocol.md, Stale. now is when
// the request was sent that last showed it unchanged. In doubt a lock is held.
func (l *Locker) judge(e *entry, st storeTime, now time.Duration) {
	e.verdict, e.why = l.verdict(e, st, now)
}

func (l *Locker) verdict(e *entry, st storeTime, now time.Duration) (Verdict, string) {
	ttl := e.ttl()
	switch {
	case errors.Is(e.err, errReleased):
		return Released, ""
	case e.err != nil && !errors.Is(e.err, errEncrypted):
		return Unreadable, e.err.Error()
	}

	// Watched for a whole ttl of our own time: the holder's last refresh was sent before we
	// first saw it, so its deadline is over, and no later one was answered.
	if now-e.since >= ttl {
		return Stale, ""
	}

	if e.changed { // it was refreshed while we watched
		return Live, ""
	}
	// Two witnesses: the store's clock, and one of this machine.
	known := l.store.Properties().StoreClock && st.known() && !e.ModTime.IsZero()
	if known && !st.when(now).After(e.ModTime.Add(ttl+margin)) {
		return Live, ""
	}
	if known && l.oneClock(e) {
		if l.self.BootID == "" && l.longDead(e, st, now) {
			return Stale, ""
		}
		return Doubtful, "this machine's clock says that it has expired, and no other clock confirms that"
	}
	expired, clock := l.expired(e, ttl, now)
	if known && e.err != nil {
		expired = l.longDead(e, st, now)
	}
	switch {
	case known && expired:
		return Stale, ""
	case known:
		return Doubtful, "the store's clock says that it has expired, and " + clock + " doesn't"
	case e.err != nil:
		return Doubtful, "its body is encrypted, and the store has no clock of its own"
	case expired:
		return Doubtful, clock + " says that it has expired, and the store has no clock of its own to confirm it"
	default:
		return Live, ""
	}
}

// endOf returns when the last of the live locks that a look has found can be taken for stale, if none
// is refreshed meanwhile, on this process's clock; 0 if one of them never can.
func (l *Locker) endOf(f findings) (end time.Duration) {
	for _, e := range f.live {
		if e.verdict != Live || e.err != nil {
			return 0
		}
		at := e.since + e.ttl()
		if age, known := e.age(f.st, f.now); known && !e.changed && l.store.Properties().StoreClock {
			at = min(at, f.now+e.ttl()+margin-age+time.Millisecond)
		}
		end = max(end, at)
	}
	return end
}

// oneClock reports whether the store's clock is all that dates an entry: on a local disk the wall
// clock stamps the mod time, and a step of it moves both. Only a clock since boot that this
// process shares with the holder is another witness, or that the machine was booted since, which
// its holder hasn't survived. A holder on another machine, which the disk is served to, has.
func (l *Locker) oneClock(e *entry) bool {
	shared := e.lease.RefreshedBoot > 0 && l.self.SameBoot(e.lease.Process)
	return l.store.Properties().MachineClock && !shared && !l.self.Rebooted(e.lease.Process)
}

// expired asks the second witness, and names it.
func (l *Locker) expired(e *entry, ttl, now time.Duration) (expired bool, clock string) {
	if e.err != nil {
		return false, "its body, which is encrypted,"
	}
	if sinceBoot := time.Duration(e.lease.RefreshedBoot); sinceBoot > 0 && l.self.SameBoot(e.lease.Process) {
		// The clock since boot, which both share and neither can set.
		return now-sinceBoot > ttl, "the time since boot"
	}
	wall := l.opts.Clock.Now()
	return wall.After(e.lease.refreshed.Add(ttl)), fmt.Sprintf("this machine's clock (%s)", wall.UTC().Format(time.RFC3339))
}

// longDead is an age that cannot be the difference between two time zones: UTC-12 and UTC+14 are
// 26 h apart.
const longDead = 27 * time.Hour

// longDead reports whether the store's clock and this machine's both show that an entry is as old
// as that. Its only date is the store's, so the second witness is not independent, and counts
// only for an age that no wrong clock explains.
func (l *Locker) longDead(e *entry, st storeTime, now time.Duration) bool {
	dead := e.ModTime.Add(longDead)
	return st.when(now).After(dead) && l.opts.Clock.Now().After(dead)
}

// age returns the age of an entry by the store's clock, and false if it is unknown.
func (e *entry) age(st storeTime, now time.Duration) (time.Duration, bool) {
	if !st.known() || e.ModTime.IsZero() {
		return 0, false
	}
	return st.when(now).Sub(e.ModTime), true
}

// info describes the entry for callers.
func (l *Locker) info(e *entry, st storeTime, now time.Duration) Info {
	b := e.lease.body
	i := Info{
		Mode: e.mode(), Keys: []string{e.Key}, ID: b.ID, Operation: b.Operation, Holder: b.Holder, State: b.State,
		User: b.User, Version: b.Version, Metadata: b.Metadata, AcquiredID: b.AcquiredID,
		Acquired: e.lease.acquired, Expires: e.lease.refreshed.Add(e.lease.ttl), TTL: e.lease.ttl,
		ModTime: e.ModTime, Verdict: e.verdict, Why: e.why, Body: e.raw,
		ProcessGone: l.self.Gone(b.Process),
		object:      e.Object,
	}
	if i.TTL == 0 {
		i.TTL = foreignTTL
	}
	if age, ok := e.age(st, now); ok {
		i.Age, i.Left, i.StoreClock = age, i.TTL-age, true
	} else if !e.lease.refreshed.IsZero() {
		i.Age = l.opts.Clock.Now().Sub(e.lease.refreshed)
		i.Left = i.TTL - i.Age
	}
	return i
}

// infos describes the locks of entries that a look has found.
func (l *Locker) infos(entries []*entry, f findings) []Info {
	var infos []Info
	for _, e := range entries {
		infos = append(infos, l.info(e, f.st, f.now))
	}
	return merge(infos)
}

// certainty orders verdicts. An exclusive lock takes the less certain one of its two objects.
var certainty = map[Verdict]int{Live: 0, Unreadable: 1, Doubtful: 2, Stale: 3, Released: 4}

// merge makes one Info of the objects of one lock: an exclusive one has two.
func merge(infos []Info) []Info {
	var out []Info
	index := map[string]int{}
	for _, i := range infos {
		if i.ID != "" && i.Mode == Exclusive {
			if at, ok := index[i.ID]; ok {
				out[at].Keys = append(out[at].Keys, i.Keys...)
				out[at].Age, out[at].Left = min(out[at].Age, i.Age), max(out[at].Left, i.Left)
				if certainty[i.Verdict] < certainty[out[at].Verdict] {
					out[at].Verdict, out[at].Why = i.Verdict, i.Why
				}
				continue
			}
			index[i.ID] = len(out)
		}
		out = append(out, i)
	}
	return out
}
