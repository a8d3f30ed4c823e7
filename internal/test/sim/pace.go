package sim

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"strings"
	"time"

	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

// The pace of a waiter: docs/evidence/protocol.md, Wait. The tests of replock have the engine's own numbers.
const (
	leastRead, mostRead = 250 * time.Millisecond, 5 * time.Second
	leastPoll, mostPoll = time.Second, 5 * time.Second
	morePoll            = 200 * time.Millisecond // for each waiter before
	freeReads           = 200
	// leastBeat is the pause between two reads in a line that has just moved, if round trips take no time.
	leastBeat = 50 * time.Millisecond

	// longestLook is the longest pause between two looks of an attempt, if round trips take no time: 400 ms, with its
	// jitter. The first pauses are shorter on a quick store.
	longestLook   = 600 * time.Millisecond
	longestWindow = 7 * time.Second // protocol.md, Beside clients of the original protocol
	// These are how many requests a waiter sends one after another, at most, from when its way is free until it has its
	// lock. It reads the blocker and polls; it puts its flag and looks; each look reads bodies once; it deletes or
	// empties what is stale, and at last its ticket. An exclusive one also looks at the pointer, puts it, and looks
	// again. A fence takes a get, a put and a look.
	sharedInARow    = 1 + 2 + 1 + 2 + 2 + 2
	exclusiveInARow = sharedInARow + 2 + 2
	fenceInARow     = 3
	// morePages is how many times as many requests it sends in a row if pages are small. The listings of later pages aren't
	// counted, because a crowd fills many.
	morePages = 3
)

// pace is what the judge knows of a step that waits for its lock. From that it computes how long the step can pause
// between two requests.
type pace struct {
	step    step
	asked   time.Time
	ticket  string          // its key
	flag    string          // of the attempt that is under way, or ""
	under   int             // requests under way
	excused bool            // a request has failed, and no look was answered since: the engine pauses before its next poll
	look    *found          // its last look, until it pauses
	met     map[string]bool // the conflicting keys of the look before its last pause; nil if an attempt was withdrawn since
	gone    map[string]bool // those of them that a read didn't find
	unsure  bool            // that look was
	tried   bool            // it was an attempt's, which reads one lock only if it yields to that
	before  int             // the waiters before it that this look has shown
	since   time.Time       // when these keys were other ones
	poll    time.Duration   // the pause before its next poll, without jitter
	spent   float64         // of freeReads
	reads   time.Time       // when spent was updated
	rests   []rest          // the last one can last
	tries   []rest          // the attempts that were withdrawn
	sends   []time.Time     // of requests, when no other one of the step was under way; without later pages
	hints   bool            // the store gives hints
}

// rest is a time without a request under way.
type rest struct {
	from, to time.Time
	most     time.Duration // that is promised
	hint     time.Time     // when the first one came
	outwaits bool          // it can be an attempt's wait for the end of the window beside an original client
}

func (r rest) took() time.Duration { return r.to.Sub(r.from) }

// sends tracks a request that a waiter sends. It checks that the waiter has paused for no longer than is promised.
func (w *world) sends(r *request) {
	if r.step == nil || w.paces[r.step.name] == nil {
		return
	}
	k := w.paces[r.step.name]
	r.pace = k
	if k.under++; k.under > 1 {
		return
	}
	now := time.Now()
	if n := len(k.rests) - 1; n >= 0 {
		k.ends(&k.rests[n], now, w.plan)
		if last := k.rests[n]; last.took() > last.most+grace && w.paced() {
			w.violate("idle", fmt.Sprintf("a waiter [%s] paused for %v, and promises %v: %d wait before it", k.step.name, last.took().Round(time.Millisecond), last.most.Round(time.Millisecond), k.before))
		}
	}
	if r.cursor == "" {
		k.sends = append(k.sends, now)
	}
	if r.op == "get" {
		k.spent = max(k.spent-now.Sub(k.reads).Seconds(), 0) + 1
		k.reads = now
	}
}

// ends ends a pause. Requests that follow one another at once belong to one look.
func (k *pace) ends(r *rest, now time.Time, p *plan) {
	r.to = now
	if r.took() > time.Millisecond && k.look != nil {
		k.learns(p)
	}
	r.most, r.outwaits = k.pause(p, *r), k.outwaits(p)
}

// paced reports whether the waiters' pace is certain: no request fails, and no ticket is broken.
func (w *world) paced() bool {
	return w.config.Protocol == nil && !w.plan.store.Markers && len(w.plan.breaks) == 0 && w.plan.answering() && w.ctx.Err() == nil
}

// follows tracks a waiter's look, or its put or deletion of a flag, when the store applies it.
func (w *world) follows(c *client, r *request, v any) {
	k := r.pace
	switch {
	case k == nil || isExclusive(r.key):
	case r.op == "list" && r.key == prefix(k.step.lock)+"lock.":
		r.found = w.meets(c, k, v.(store.Page))
		r.found.polled = k.flag == ""
	case r.op == "put" && w.queue[r.key].client == c:
		k.ticket = r.key
	case r.op == "put" && len(r.body) > 0 && isLock(r.key): // not a fence's number
		if k.flag != r.key {
			k.flag, k.tries = r.key, append(k.tries, rest{from: time.Now()})
		}
	case r.writes() && r.key == k.flag: // withdrawn: the waiter counts from here
		k.flag, k.since, k.poll, k.met = "", time.Now(), leastPoll, nil
		k.tries[len(k.tries)-1].to = k.since
	}
}

// found is what a waiter's look finds: the conflicting keys, and how many of them are tickets.
type found struct {
	keys    map[string]bool
	gone    map[string]bool // those of them that a read didn't find: the look's, or the first one after it
	tickets int
	at      time.Time // when the last answer came
	polled  bool      // it is a poll's, and not an attempt's
	unsure  bool      // it has a lock that the waiter can take for live or stale
}

// meets returns what a waiter finds on a page. While a lock from before its place is stored, it reads no later one.
func (w *world) meets(c *client, k *pace, page store.Page) *found {
	place := path.Base(k.ticket)
	if k.ticket == "" && k.step.mode == replock.Exclusive {
		place = path.Base(k.flag)
	}
	early, late := &found{keys: map[string]bool{}, gone: map[string]bool{}}, &found{keys: map[string]bool{}, gone: map[string]bool{}}
	for _, o := range page.Objects {
		lives := w.lives[o.Key]
		if !k.step.meets(o.Key) || o.Size == 0 || len(lives) == 0 {
			continue
		}
		l, f := lives[len(lives)-1], early
		if place != "." && path.Base(o.Key) > place {
			f = late
		}
		ticket := w.queue[o.Key].client != nil
		switch {
		case l.client == c && l.step == k.step.name, ticket && f == late:
			continue
		case l.dead: // the waiter might still count it
			early.unsure, late.unsure = true, true
			if ticket {
				f.tickets++
			}
			continue
		case l.client == nil, l.client.plan.foreign:
			early.unsure, late.unsure = true, true
		case ticket:
			f.tickets++
			continue
		}
		f.keys[o.Key] = true
	}
	if len(early.keys)+early.tickets > 0 {
		return early
	}
	return late
}

// rested notes that a waiter's request has ended. If none is under way, the waiter pauses.
func (w *world) rested(r *request, err error) {
	k := r.pace
	if k == nil {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	now := time.Now()
	switch {
	case r.found != nil && err == nil:
		if k.look != nil && k.look.polled && r.cursor == "" { // it polls again at once
			k.learns(w.plan)
		}
		k.look = r.found.after(k.look, r.cursor != "")
	case k.look != nil && errors.Is(err, store.ErrNotFound) && k.look.keys[r.key]: // deleted since the listing
		k.look.gone[r.key] = true
	}
	if k.look != nil && !r.writes() {
		k.look.at = now
	}
	_, answer := errors.AsType[*store.Error](err)
	switch failed := err != nil && !answer; {
	case failed: // as if the way were free from now on
		k.excused, k.sends = true, nil
	case r.op == "list", r.op == "get" && k.flag == "": // not what withdraws a failed attempt, and then puts the ticket
		k.excused = false
	}
	if k.under--; k.under == 0 {
		k.rests = append(k.rests, rest{from: now})
	}
}

// after adds the earlier pages of a look to a later one.
func (f *found) after(earlier *found, later bool) *found {
	if later && earlier != nil {
		maps.Copy(f.keys, earlier.keys)
		maps.Copy(f.gone, earlier.gone)
		f.tickets += earlier.tickets
		f.unsure = f.unsure || earlier.unsure
	}
	return f
}

// learns takes over what a look has found. If clocks are wrong, or a lock can be stale, it is uncertain which locks the
// waiter has read.
func (k *pace) learns(p *plan) {
	f := k.look
	same := k.within(k.met, f) && k.within(f.keys, f)
	if f.tickets > 0 || k.before > 0 { // how many of them the waiter counts, and which ones it has read, is uncertain
		same = k.met != nil
	}
	k.look, k.before = nil, f.tickets
	switch {
	case f.unsure, k.unsure, !p.undoubted():
		k.since, k.poll = k.asked, mostPoll
	case same:
		k.poll = min(k.poll*5/4, mostPoll)
	case k.met == nil && !f.polled:
		k.poll = leastPoll
	case k.met == nil, k.tried: // the attempt before might have read no more of these keys than the poll has shown
		k.poll = leastPoll * 5 / 4
	default:
		k.since, k.poll = f.at, leastPoll
	}
	k.unsure, k.tried = f.unsure, !f.polled
	k.met, k.gone = f.keys, f.gone
}

// within reports whether two looks in a row can both have found these keys.
func (k *pace) within(keys map[string]bool, f *found) bool {
	for key := range keys {
		if (!k.met[key] || !f.keys[key]) && !k.gone[key] && !f.gone[key] {
			return false
		}
	}
	return true
}

// pause returns how long a waiter pauses now, at most.
func (k *pace) pause(p *plan, r rest) time.Duration {
	now := r.from
	n := time.Duration(1 + k.before)
	first := min(max(now.Sub(k.since)/100, leastRead), mostRead)
	read := min(first*n, max(first, n*max(2*p.roundTrip(), leastBeat), now.Sub(k.since)/2)) * 3 / 2 // it might have found itself the first one
	over := max(k.spent-now.Sub(k.reads).Seconds(), 0) + 1 - freeReads
	spent := time.Duration(max(over, 0) * float64(time.Second))
	read += spent
	switch {
	case !r.hint.IsZero():
		read = r.hint.Sub(r.from) + spent
	case k.hints:
		read = time.Hour
	}
	most := min(read, 2*k.poll*n, 4*k.poll+mostPoll+time.Duration(k.before)*morePoll)
	switch {
	case k.excused:
		return time.Hour
	case k.outwaits(p):
		return longestWindow
	case k.flag != "": // an attempt looks again
		return max(longestLook, (200*time.Millisecond+p.roundTrip())*3/2)
	default:
		return most
	}
}

// outwaits reports whether the waiter has an attempt beside original clients, which might have looked before its put.
func (k *pace) outwaits(p *plan) bool { return k.flag != "" && p.originals() }

// idle checks that a waiter has its lock soon after its way is free: after one pause and the requests of a read, a
// poll and an attempt. An attempt that was under way then can end too late, and another one follows.
func (w *world) idle(h *holding) {
	k := w.paces[h.step.name]
	delete(w.paces, h.step.name)
	if k == nil || h.foreign() || !w.paced() {
		return
	}
	place := k.ticket
	if place == "" && h.step.mode == replock.Exclusive {
		place = h.lock.Key()
	}
	free := later(w.inTheWay(h.p.client, h.step, time.Time{}, path.Base(place)), k.asked)
	rested, most, window, sent := time.Duration(0), time.Duration(0), time.Duration(0), 0
	for _, r := range k.rests {
		switch {
		case !r.to.After(free):
			continue
		case r.outwaits: // the window comes after the pause
			window = max(window, r.most)
		default:
			most = max(most, r.most)
		}
		rested += r.to.Sub(later(r.from, free))
	}
	most += window
	for _, at := range k.sends {
		if at.After(free) {
			sent++
		}
	}
	if rested > most+grace {
		w.violate("idle", fmt.Sprintf("%v was granted %v after the way was free, and its waiter paused for %v, which promises %v", h, time.Since(free).Round(time.Millisecond), rested.Round(time.Millisecond), most.Round(time.Millisecond)))
	}
	limit := sharedInARow
	if h.step.mode == replock.Exclusive {
		limit = exclusiveInARow
	}
	if h.step.fence {
		limit += fenceInARow
	}
	if w.plan.store.PageSize < 1000 {
		limit *= morePages
	}
	for _, t := range k.tries {
		if !t.from.After(free) && t.to.After(free) {
			limit *= 2
		}
	}
	if sent > limit {
		w.violate("idle", fmt.Sprintf("%v was granted %v after the way was free, after %d requests, one after another", h, time.Since(free).Round(time.Millisecond), sent))
	}
}

// vacancy is a time in which the way of a step was free. The step is the first of the waiters.
type vacancy struct {
	step  string
	since time.Time
}

// vacates tracks for how long the way of the first waiter is free, until an acquirer puts its flag. That is its way as
// long as no conflicting object is stored but tickets of later waiters.
func (w *world) vacates(r *request) {
	if !r.writes() || !isLock(r.key) || !w.paced() {
		return
	}
	lock := nameOf(r.key)
	var first *pace
	for _, k := range w.paces {
		if k.step.lock == lock && w.stored[k.ticket] && (first == nil || path.Base(k.ticket) < path.Base(first.ticket)) {
			first = k
		}
	}
	step := ""
	if first != nil && !w.taken(first) {
		step = first.step.name
	}
	was := w.vacant[lock]
	if step == was.step {
		return
	}
	w.vacant[lock] = vacancy{step, time.Now()}
	if was.step == "" {
		return
	}
	idle := time.Since(was.since) - 3*w.plan.roundTrip()
	if w.result.Idle = max(w.result.Idle, idle); w.config.Idle > 0 && idle > w.config.Idle {
		w.violate("idle", fmt.Sprintf("the way of the first waiter [%s] was free for %v, and it didn't take the lock", was.step, time.Since(was.since).Round(time.Millisecond)))
	}
}

// taken reports whether an object that is no ticket conflicts with a waiter, or is its own.
func (w *world) taken(k *pace) bool {
	for key := range w.stored {
		lives := w.lives[key]
		l := lives[len(lives)-1]
		if strings.HasPrefix(key, prefix(k.step.lock)+"lock.") && !l.waits && (k.step.meets(key) || l.step == k.step.name) {
			return true
		}
	}
	return false
}
