package replock

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/replock/internal/verdict"
	"github.com/repolock/repolock/store"
)

// enter puts the objects of an attempt, and returns nil once a look finds no conflict.
//
// Why that excludes all others: the store had answered our put of the flag before the last look began. The look found
// no live flag that conflicts. It ended before the deadline of our flag, so our flag was stored and live throughout. A
// conflicting acquirer that the look didn't show puts its flag after our look began. Its own look comes after that, and
// shows our flag.
func (l *Locker) enter(ctx context.Context, t *attempt, q *queue) (verdict.Findings, error) {
	if f, err := l.arrive(ctx, t, q.memory); err != nil {
		return f, err
	}
	l.inquire(ctx)
	if err := l.raise(ctx, t); err != nil {
		return l.barred(ctx, t, q.memory, err)
	}
	q.decide.try = lookCounts{until: q.decidesBy(t)}
	for swept := false; ; {
		f, err := l.look(ctx, t, q.memory)
		t.found(f)
		next := q.decide.afterLook(t, f, err)
		switch next.step {
		case giveUp:
			if errors.Is(next.err, ErrHeld) && len(f.Live) == 0 {
				f.Live = f.Vanished // a listing counts more than a read
			}
			return f, next.err
		case stepDown:
			if !l.stepDown(ctx, t) {
				return f, ErrHeld
			}
		case goOn:
			if err := l.reap(ctx, t, f); err != nil {
				return f, err
			}
			if t.mode == Exclusive && !swept {
				l.sweep(ctx, f.Released)
				swept = true
			}
			switch {
			case t.mode == Exclusive && !t.listed.pointer:
				// lock.exclusive must be stored before the last look, because other clients of the wire format look
				// only at lock.exclusive.
				if err := l.claim(ctx, t, f.Pointer); err != nil {
					return f, err
				}
				next = q.decide.afterClaim(t)
			case t.mode == Exclusive && q.fence && t.fence == 0:
				// The fencing token is taken before the last look, too. So if an acquirer is paused after that look,
				// another one that acquires the lock meanwhile has a larger token.
				if t.fence, err = l.nextFence(ctx, t.id); err != nil {
					return f, err
				}
			default:
				again, err := l.outwait(ctx, t)
				if err != nil || !again {
					t.leftPointer = f.Pointer
					return f, err
				}
			}
		}
		if next.pause > 0 {
			if err := clock.Sleep(ctx, l.opts.Clock, l.jitter(next.pause)); err != nil {
				return f, err
			}
		}
	}
}

// arrive sends a request only before the first put, and only if a put might create the repository. Then it lists the
// locks, and returns an error if the repository doesn't exist. An acquirer that can wait makes a look of that listing. It
// queues at once (ErrHeld) if a holder or a waiter conflicts, and so saves an attempt.
func (l *Locker) arrive(ctx context.Context, t *attempt, s verdict.Memory) (f verdict.Findings, err error) {
	if !l.store.Properties().PutCreates || l.reached.Load() {
		return f, nil
	}
	if !t.waits {
		_, err = l.list(ctx, l.keys.All(), "")
	} else {
		t.polls = true
		f, err = l.look(ctx, t, s)
		t.looks = looks{}
	}
	stays := func(e *verdict.Entry) bool { return !t.contender(0).MayWithdraw(f, e) }
	switch {
	case err != nil:
		return f, fault.While("looking for other locks", err)
	case slices.ContainsFunc(f.Live, stays):
		return f, ErrHeld
	default:
		return verdict.Findings{}, nil // the attempt's own look decides
	}
}

// barred returns the error of an acquirer that couldn't put its flag. Another object can be in the place of the flag's
// folder or of lock.exclusive. If a look shows one, the error is ErrHeld, because that object is an unreadable lock.
func (l *Locker) barred(ctx context.Context, t *attempt, s verdict.Memory, err error) (verdict.Findings, error) {
	if !errors.Is(err, store.ErrIrregular) {
		return verdict.Findings{}, err
	}
	if f, lerr := l.look(ctx, t, s); lerr == nil && len(f.Live) > 0 {
		return f, ErrHeld
	}
	return verdict.Findings{}, err
}

// raise puts our flag. If the store honours If-None-Match, so that the put can't overwrite another holder's
// lock.exclusive, it puts lock.exclusive too. It sends both puts at once, unless the flag's put must first prove the
// condition.
func (l *Locker) raise(ctx context.Context, t *attempt) error {
	l.date(t)
	absent := &l.conditions.absent
	switch {
	case t.mode == Exclusive && absent.holds():
		claimed := make(chan error, 1)
		go func() { claimed <- l.claim(ctx, t, nil) }()
		err := l.putFlag(ctx, t)
		return fault.Join(err, <-claimed)
	case t.mode == Exclusive && absent.open():
		if err := l.proveAbsent(ctx, t); err != nil || !absent.holds() {
			return err
		}
		return l.claim(ctx, t, nil)
	default:
		return l.putFlag(ctx, t)
	}
}

// maxRefused is how often an attempt accepts that the store refuses to write a lock.exclusive although no look lists
// one. Such a store might treat a deleted object as stored (versitygw: its delete marker). After that the attempt
// writes without a condition, unless the backend itself honours the condition (decision 0004). Such a put can overwrite
// only a lock.exclusive that was put after our last look, and the look of its acquirer shows our flag.
const maxRefused = 3

// claim puts lock.exclusive if there is none, or replaces the stale or empty one that a look has shown (seen). If
// another acquirer was faster, claim returns nil, and the next look shows its lock.
func (l *Locker) claim(ctx context.Context, t *attempt, seen *verdict.Entry) error {
	var opts store.PutOptions
	if seen != nil && !l.conditions.match.holds() {
		// Reading and reaping took some time. So look again whether the stale lock.exclusive is still there.
		now, err := l.find(ctx, t.pointer.key)
		switch {
		case err != nil:
			return fault.While("looking at the lock", err)
		case now == nil:
			seen = nil
		case now.ETag != seen.ETag || now.Size != seen.Size:
			return nil // the next look judges it
		}
	}
	if t.listed.another {
		t.refusals = 0
	}
	switch {
	case seen == nil:
		spurious := t.refusals >= maxRefused && l.store.Properties().IfAbsent != store.Kept
		opts.IfAbsent = !l.conditions.absent.fails() && !spurious
	case l.conditions.match.holds():
		opts.IfMatch = seen.ETag
	}
	before := t.pointer.maybe
	t.pointer.maybe = true
	o, again, err := l.putExclusive(ctx, t, opts)
	switch {
	case err == nil:
		t.claimed(o.ETag)
		return nil
	case errors.Is(err, store.ErrConditionUnsupported) && t.looked: // the look found no live lock
		return l.overwrite(ctx, t)
	case errors.Is(err, store.ErrConditionUnsupported):
		t.pointer.maybe = before
		return nil
	case errors.Is(err, store.ErrPrecondition):
		// If the put was sent twice, its own first send might have caused the refusal. The next look shows that.
		t.pointer.maybe = before || again
		if opts.IfAbsent {
			t.refusals++
		}
		return nil
	default:
		return fault.While("writing the lock", err)
	}
}

// overwrite puts lock.exclusive without a condition. t.pointer.maybe stays set, because an earlier send can still be
// applied.
func (l *Locker) overwrite(ctx context.Context, t *attempt) error {
	o, _, err := l.putExclusive(ctx, t, store.PutOptions{})
	if err != nil {
		return fault.While("writing the lock", err)
	}
	t.claimed(o.ETag)
	return nil
}

// putExclusive puts lock.exclusive. again reports that it sent the put more than once: then an earlier send can be
// applied at any time.
func (l *Locker) putExclusive(ctx context.Context, t *attempt, opts store.PutOptions) (o store.Object, again bool, err error) {
	body := t.body
	body.Nonce = l.nonce() // the flag's put can be one that a copy of this process has sent, too
	t.stood = 0
	o, again, err = l.sendRepeatedly(ctx, t, t.pointer.key, body, opts)
	if err == nil {
		t.stood = l.opts.Clock.Elapsed()
	}
	t.pointer.twice = t.pointer.twice || again
	return o, again, err
}

// fenceBody is the JSON of the fence object.
type fenceBody struct {
	Fence uint64 `json:"fence"`
	ID    string `json:"id"`    // the id of the lock that took the number
	Nonce string `json:"nonce"` // 64 random bits in hex, new for each put
}

// nextFence adds one to the number in the fence object, and returns the result. An acquirer calls it after its flag and
// lock.exclusive are stored, and before its last look. Of two holders, the later one puts its flag after the earlier
// one's last look, and so takes the larger number. nextFence fails on a store that doesn't honour conditions: there a
// late put of an earlier acquirer could set the number back.
func (l *Locker) nextFence(ctx context.Context, id string) (uint64, error) {
	p := l.store.Properties()
	if p.IfAbsent != store.Kept || !l.conditions.match.holds() {
		err := fmt.Errorf("%w: store %s has no conditional put that can be relied on", ErrNoFencingToken, p.Name)
		if p.IfAbsent == store.Claimed {
			err = fault.Advise(err, "add conditions=kept to the URL if {repolock doctor} proposes it, or leave out --fence")
		}
		return 0, err
	}
	key := l.keys.Fence()
	var refused error
	var sent [][]byte // a body with this id that isn't among them is a copy's of this process
	for range maxTries {
		opts := store.PutOptions{IfAbsent: true, Durable: true}
		var last fenceBody
		c, err := l.get(ctx, key)
		switch {
		case errors.Is(err, store.ErrNotFound):
		case err != nil:
			return 0, fmt.Errorf("%w: %w", ErrNoFencingToken, err)
		default:
			if err := json.Unmarshal(c.raw, &last); err != nil || last.Fence == 0 {
				return 0, fmt.Errorf("%w: %s has no fencing token: write a number into it that is larger than all earlier tokens", ErrNoFencingToken, key)
			}
			if slices.ContainsFunc(sent, func(raw []byte) bool { return bytes.Equal(raw, c.raw) }) {
				return last.Fence, nil // our put was applied, and its answer was lost
			}
			opts.IfAbsent, opts.IfMatch = false, c.object.ETag
		}
		next := fenceBody{Fence: last.Fence + 1, ID: id, Nonce: l.nonce()}
		if next.Fence == 0 {
			return 0, fmt.Errorf("%w: %s has the largest number already", ErrNoFencingToken, key)
		}
		raw, err := json.Marshal(next)
		if err != nil {
			return 0, err
		}
		sent = append(sent, raw)
		if _, err = l.put(ctx, key, raw, opts); err == nil {
			return next.Fence, nil
		}
		if !errors.Is(err, store.ErrPrecondition) {
			return 0, fmt.Errorf("%w: %w", ErrNoFencingToken, err)
		}
		refused = err
	}
	return 0, fmt.Errorf("%w: other clients changed %s before each write, or the store refuses to write it again after a deletion: %w", ErrNoFencingToken, key, refused)
}

// settle returns nil if the lock can be held. The caller's last look has found no conflict.
func (l *Locker) settle(ctx context.Context, t *attempt) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return l.holdable(t)
}

// proofPause is the pause between two puts of a proof. It ends early if the first put is answered. A server that
// receives two puts of one key at once can take far longer: MinIO lets the second try again after up to 50 ms
// (lockRetryInterval of its LRWMutex). The value is a guess at the time of one put.
const proofPause = 5 * time.Millisecond

// The puts of proveAbsent, in the order in which they are sent.
const (
	firstIfAbsent = iota
	secondIfAbsent
	unconditional // without a condition
	proofPuts
)

// proveAbsent puts our flag, and finds out in the same round trip whether the store honours If-None-Match. It sends the
// same body up to three times. It pauses between the puts, but doesn't wait for the answers. Two puts have
// If-None-Match. The third has no condition, and isn't sent if one of the two is known to be applied by then. A store
// that honours the condition refuses at least one of the two, in whatever order it applies them. A store that ignores it
// applies both. Only we ever write that key, so an extra put does no harm.
func (l *Locker) proveAbsent(ctx context.Context, t *attempt) error {
	type answer struct {
		put int
		o   store.Object
		err error
	}
	t.flag.maybe = true
	var errs [proofPuts]error
	last := answer{put: -1} // the applied put that was sent last
	answers, unanswered := make(chan answer, proofPuts), 0
	body := t.body.Encode()
	note := func(a answer) {
		unanswered--
		errs[a.put] = a.err
		if a.err == nil && a.put > last.put {
			last = a
		}
	}
	for put := range proofPuts {
		if put > firstIfAbsent {
			select {
			case a := <-answers:
				note(a)
			case <-l.opts.Clock.After(proofPause):
			}
		}
		if put == unconditional && last.put >= 0 {
			break
		}
		send := l.send(t, t.flag.key, body, store.PutOptions{IfAbsent: put != unconditional})
		unanswered++
		go func() {
			o, err := once(ctx, "put "+t.flag.key, send)(l.times.Timeout)
			answers <- answer{put, o, err}
		}()
	}
	for unanswered > 0 {
		note(<-answers)
	}
	l.conditions.absent.learnFromTwo(errs[firstIfAbsent], errs[secondIfAbsent], last.put == unconditional)
	if last.put < 0 { // no put was applied
		return l.putFlag(ctx, t)
	}
	l.raised(t, last.o)
	return nil
}

// attempts is the number of tries of a refresh that must fit into the time from its start to the deadline.
const attempts = 3

// holdable returns ErrSlow if the store is so slow that three tries of a refresh don't fit before the deadline. Such a
// lock can't be held. It returns errLate if they would fit, but this attempt has already taken too long.
func (l *Locker) holdable(t *attempt) error {
	refresh := t.trips.put.get()
	if !l.conditions.matchKept {
		refresh += t.trips.list.get() // a look precedes the put
	}
	window := l.times.Deadline - l.times.Interval
	if attempts*refresh <= window {
		if l.opts.Clock.Elapsed()+attempts*refresh >= t.deadline {
			return errLate
		}
		return nil
	}
	longer := time.Duration(float64(l.opts.TTL) * float64(attempts*refresh) / float64(window))
	longer = longer.Truncate(time.Second) + time.Second
	return fmt.Errorf("%w: a refresh takes %v, and with a ttl of %v, %d of them must fit into %v; use a ttl of %v",
		ErrSlow, refresh.Round(time.Millisecond), l.opts.TTL, attempts, window.Round(time.Millisecond), longer)
}
