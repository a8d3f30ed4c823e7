package replock

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
)

// margin is added to a lease's end on the store's clock, because S3 truncates mod times to seconds,
// and the clocks of a store's gateways differ a little.
const margin = 2 * time.Second

// storeTime is a lower bound of the store's clock. The zero value means unknown.
type storeTime struct {
	at      time.Time     // on the store's clock
	elapsed time.Duration // on our clock, at the same moment or later
}

// when returns a lower bound of the store's clock at the given time on ours.
func (s storeTime) when(elapsed time.Duration) time.Time { return s.at.Add(elapsed - s.elapsed) }

func (s storeTime) known() bool { return !s.at.IsZero() }

// entry is a lock object of another client.
type entry struct {
	store.Object
	kind    kind
	read    bool // raw, lease and err are known
	raw     []byte
	lease   decoded
	err     error
	carried bool          // not read: lease is the parsed body of an earlier version
	since   time.Duration // when this version was first seen
	changed bool          // another version was seen before
	shown   time.Duration // when a survey sent the request that showed it

	verdict Verdict
	why     string
}

// mode returns the mode of the entry's lock.
func (e *entry) mode() Mode {
	if e.kind == kindShared || errors.Is(e.err, errNotFolder) && strings.HasSuffix(e.Key, "lock.shared") {
		return Shared
	}
	return Exclusive
}

// memory keeps entries from look to look: a body while its ETag is unchanged, and the time since
// when the object is unchanged.
type memory map[string]*entry

// see returns the entry of an object in a listing that was answered at the given time.
func (s memory) see(o store.Object, k kind, answered time.Duration) *entry {
	e, ok := s[o.Key]
	if was := e; !ok || e.ETag != o.ETag || !e.ModTime.Equal(o.ModTime) || e.Size != o.Size {
		e = &entry{Object: o, kind: k, since: answered, changed: ok}
		switch {
		case o.Size == 0: // an empty body needn't be read
			e.read, e.err = true, errReleased
		case k == kindOdd:
			e.read, e.err = true, errNotFolder
			if strings.Contains(o.Key, "lock.exclusive/") {
				e.err = errNotFile
			}
		case ok:
			e.carry(was)
		}
		s[o.Key] = e
	}
	return e
}

// forget drops entries that a page shows to be gone, because a later object under the same key is
// another lock. after is the last key of the previous page.
func (s memory) forget(page store.Page, after string) {
	listed := map[string]bool{}
	for _, o := range page.Objects {
		listed[o.Key] = true
	}
	maps.DeleteFunc(s, func(key string, _ *entry) bool {
		return covers(page, key) && key > after && !listed[key]
	})
}

// carry keeps the parsed body of the previous version of a flag, because a refresh changes only its
// times.
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

// ttl returns how long the lock lasts after its last refresh.
func (e *entry) ttl() time.Duration {
	if e.err != nil {
		return foreignTTL
	}
	return e.lease.ttl
}

// judge sets the verdict of an entry whose body was read: docs/evidence/protocol.md, "Live, stale, unreadable".
// now is when the last request that showed it unchanged was sent. In doubt a lock is held.
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

	// It was watched for a whole ttl of our own time. The holder sent its last refresh before we
	// first saw it, so its deadline is over, and no later refresh was answered.
	if now-e.since >= ttl {
		return Stale, ""
	}

	if e.changed { // it was refreshed while it was watched
		return Live, ""
	}
	// There are two witnesses: the store's clock, and a clock of this machine.
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

// endOf returns when all live locks of a look are stale if none is refreshed, on this process's clock. It
// returns 0 if the body of one of them can't be read.
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

// oneClock reports whether an entry is dated by a single clock. On a local disk the wall clock stamps the mod
// times, so a step of it moves both witnesses. A clock since boot that this process shares with the holder is a
// second witness. So is a reboot of the holder's machine, if that is this one, because the holder hasn't
// survived it. The disk can also be served to other machines, whose holders have survived it.
func (l *Locker) oneClock(e *entry) bool {
	shared := e.lease.RefreshedBoot > 0 && l.self.SameBoot(e.lease.Process)
	return l.store.Properties().MachineClock && !shared && !l.self.Rebooted(e.lease.Process)
}

// expired reports whether the second witness takes a lock for expired, and returns the name of the witness.
func (l *Locker) expired(e *entry, ttl, now time.Duration) (expired bool, clock string) {
	if e.err != nil {
		return false, "its body, which is encrypted,"
	}
	if sinceBoot := time.Duration(e.lease.RefreshedBoot); sinceBoot > 0 && l.self.SameBoot(e.lease.Process) {
		// Both processes share the clock since boot, and it can't be set.
		return now-sinceBoot > ttl, "the time since boot"
	}
	wall := l.opts.Clock.Now()
	return wall.After(e.lease.refreshed.Add(ttl)), fmt.Sprintf("this machine's clock (%s)", wall.UTC().Format(time.RFC3339))
}

// longDead is longer than any difference between two time zones: UTC-12 and UTC+14 are 26 h apart.
const longDead = 27 * time.Hour

// longDead reports whether an entry is older than longDead by the store's clock and by this machine's. Both
// clocks are compared with the store's mod time, so they aren't independent. They count only for an age that no
// wrong clock explains.
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

// info describes an entry for callers.
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

// infos describes entries of a look for callers.
func (l *Locker) infos(entries []*entry, f findings) []Info {
	var infos []Info
	for _, e := range entries {
		infos = append(infos, l.info(e, f.st, f.now))
	}
	return merge(infos)
}

// certainty orders verdicts by how certainly the lock has ended. An exclusive lock has the less certain verdict
// of its two objects.
var certainty = map[Verdict]int{Live: 0, Unreadable: 1, Doubtful: 2, Stale: 3, Released: 4}

// merge combines the two objects of an exclusive lock into one Info. It reuses the slice.
func merge(infos []Info) []Info {
	out := infos[:0]
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
