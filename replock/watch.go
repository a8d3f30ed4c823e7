package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// watch looks at a held lock every Options.Look until ctx ends: docs/protocol.md, Watch. So a break
// is noticed soon, whatever the ttl. So is a hypervisor's pause, after which all clocks of the
// machine show that the lease still lasts.
//
// A look that fails changes nothing: the lease lasts until its deadline.
func (k *term) watch(ctx context.Context) {
	c := k.l.opts.Clock
	unwritten, again := k.firstWrite()
	next := k.firstLook(k.Seen().Elapsed)
	for pause := firstPoll; ; {
		if unwritten && c.Elapsed() >= again {
			unwritten = k.Renew(ctx) != nil // after a loss, ctx ends
			again = c.Elapsed() + firstPoll
		}
		if clock.Sleep(ctx, c, min(max(next-c.Elapsed(), 0), clock.Tick)) != nil {
			return
		}
		now := clock.Read(c)
		if now.Elapsed >= k.end() {
			// It is lost, and ctx ends, unless a refresh extends it just now.
			next = now.Elapsed + firstPoll
			continue
		}
		if now.Elapsed < next && !now.Parted(k.Seen()) {
			continue
		}
		switch err := k.look(ctx); {
		case err == nil:
			pause = firstPoll
			next = k.nextLook(now.Elapsed)
		case errors.Is(err, ErrLost):
			k.Fail(err)
			return
		case errors.Is(err, errAgain):
			next = c.Elapsed() + transient
		default:
			next = c.Elapsed() + pause
			pause = min(2*pause, k.l.opts.Look)
		}
	}
}

// firstWrite reports whether the lock must be refreshed early, and when. If its date is wrong
// because the wall clock is behind the store's, that is now. For an exclusive lock it is a second
// from now: then the flag has the state held, for which acquirers that came at the same time wait.
func (k *term) firstWrite() (bool, time.Duration) {
	now := k.l.opts.Clock.Elapsed()
	if k.l.behind(*k.now.Load()) > margin {
		return true, now
	}
	return k.t.mode == Exclusive, now + firstPoll
}

// firstLook returns when the first look after the acquire is due. For a lock without a name it is
// due after one to two seconds, because a client of the original protocol can have looked before
// our put and written after our look.
func (k *term) firstLook(sent time.Duration) time.Duration {
	next := k.nextLook(sent)
	if k.l.opts.Name == "" {
		next = min(next, sent+time.Second+k.l.jitter(time.Second/2))
	}
	return next
}

// nextLook returns when the next look is due, after one that was sent at the given time. It is
// early by a random time, so that many holders don't look at the same time.
func (k *term) nextLook(sent time.Duration) time.Duration {
	return sent + k.l.opts.Look - k.l.jitter(k.l.opts.Look/20)
}

// errAgain is the error of a look that found an acquirer that might be about to withdraw.
var errAgain = errors.New("looking again")

// saw records when the lock was seen, unless the clocks have parted since it was last seen: then
// only reassure can record it.
func (k *term) saw(r clock.Reading) {
	if !r.Parted(k.Seen()) {
		k.Saw(r)
	}
}
