package replock

import (
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/store"
)

// margin is added to a lease's end on the store's clock: mod times are rounded
// down to a second by S3, and the clocks of a store's gateways differ a little.
const margin = 2 * time.Second

// young is the age below which a flag is a conflict without its body being
// read: only a ttl shorter than the default one could make it stale.
const young = DefaultTTL

// storeTime is a lower bound of the store's own clock. The zero value is
// unknown.
type storeTime struct {
	at      time.Time     // a reading of the store's clock,
	elapsed time.Duration // and of ours, not earlier
}

// when is a lower bound of the store's clock at a reading of ours.
func (s storeTime) when(elapsed time.Duration) time.Time { return s.at.Add(elapsed - s.elapsed) }

func (s storeTime) known() bool { return !s.at.IsZero() }

// entry is a lock object of somebody else.
type entry struct {
	store.Object
	kind kind
	// What the body says, once it was read.
	read  bool
	raw   []byte
	lease lease
	err   error
	// carried: it wasn't read, and lease is what an earlier version said.
	carried bool
	// When this process first saw the object as it is now, and whether it had
	// seen it otherwise before.
	since   time.Duration
	changed bool
	shown   time.Duration // for a survey: when the request was sent that showed it

	verdict Verdict
	why     string
}

// mode of the lock that the entry is of.
func (e *entry) mode() Mode {
	if e.kind == kindShared {
		return Shared
	}
	return Exclusive
}

// sight remembers the entries of one acquire from look to look: their bodies,
// which needn't be read again as long as the ETag stays, and since when they
// didn't change.
type sight map[string]*entry

// see returns what is known of an object that was listed in a request that was
// answered at the given time.
func (s sight) see(o store.Object, k kind, answered time.Duration) *entry {
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

// carry takes over what the version before said: a refresh changes nothing of a flag,
// which only one ever writes, but its times.
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

// ttl is how long it lasts after its last change.
func (e *entry) ttl() time.Duration {
	if e.err != nil {
		return foreignTTL
	}
	return e.lease.ttl
}

// judge decides what an entry is whose body was read: PROTOCOL.md, "Live, stale,
// unreadable". now is when the request was sent that last showed it unchanged.
// In doubt it is held.
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

	// Watched for a whole ttl of this process's own time, whatever any clock
	// says: the holder's last refresh was sent before we first saw it, so its
	// deadline is over, and no later one was answered.
	if now-e.since >= ttl {
		return Stale, ""
	}

	// Somebody refreshed it under our eyes.
	if e.changed {
		return Live, ""
	}

	// Two witnesses: the store's clock, and one of this machine.
	known := l.store.Properties().StoreClock && st.known() && !e.ModTime.IsZero()
	if known && !st.when(now).After(e.ModTime.Add(ttl+margin)) {
		return Live, ""
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

// expired asks the second witness, and names it.
func (l *Locker) expired(e *entry, ttl, now time.Duration) (expired bool, clock string) {
	if e.err != nil {
		return false, "its body, which is encrypted,"
	}
	if sinceBoot := time.Duration(e.lease.RefreshedBoot); sinceBoot > 0 && l.self.SameBoot(e.lease.process()) {
		// A holder on this very machine and in our time namespace: the clock since
		// boot, which both share and nobody can set, in place of the wall clock. On a local directory
		// that stamps the mod times as well, and would be both witnesses.
		return now-sinceBoot > ttl, "the time since boot"
	}
	wall := l.opts.Clock.Now()
	return wall.After(e.lease.refreshed.Add(ttl)), fmt.Sprintf("this machine's clock (%s)", wall.UTC().Format(time.RFC3339))
}

// longDead is an age that no clock shows by mistake for another time zone's: those are up to
// 14 h apart.
const longDead = 15 * time.Hour

// longDead reports whether the store's clock and this machine's both say that an encrypted
// body is as old as that. Its second witness isn't independent of the first, because its only
// date is the store's; so it counts only for an age that a wrong clock doesn't explain.
func (l *Locker) longDead(e *entry, st storeTime, now time.Duration) bool {
	dead := e.ModTime.Add(longDead)
	return st.when(now).After(dead) && l.opts.Clock.Now().After(dead)
}

// age of an entry by the store's clock; false if that isn't known.
func (e *entry) age(st storeTime, now time.Duration) (time.Duration, bool) {
	if !st.known() || e.ModTime.IsZero() {
		return 0, false
	}
	return st.when(now).Sub(e.ModTime), true
}

// info is the entry for others to see.
func (l *Locker) info(e *entry, st storeTime, now time.Duration) Info {
	b := e.lease.body
	i := Info{
		Mode: e.mode(), Keys: []string{e.Key}, ID: b.ID, Operation: b.Operation, Holder: b.Holder, State: b.State,
		User: b.User, Version: b.Version, Metadata: b.Metadata, AcquiredID: b.AcquiredID,
		Acquired: e.lease.acquired, Expires: e.lease.refreshed.Add(e.lease.ttl), TTL: e.lease.ttl,
		ModTime: e.ModTime, Verdict: e.verdict, Why: e.why, Body: e.raw,
		ProcessGone: l.self.Gone(b.process()),
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

func (l *Locker) infos(entries []*entry, st storeTime, now time.Duration) []Info {
	infos := make([]Info, 0, len(entries))
	for _, e := range entries {
		infos = append(infos, l.info(e, st, now))
	}
	return infos
}

// certainty that a lock is over: of two objects of a lock, the lesser counts.
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
