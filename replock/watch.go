package replock

import (
	"context"
	"errors"
	"time"

	"github.com/repolock/repolock/internal/clock"
)

// watch looks at a held lock each Options.Look, until ctx ends: docs/protocol.md, Look. So a
// break is noticed soon, whatever the ttl, and so is a machine that its hypervisor has paused,
// whose clocks all show that the lease still lasts.
//
// A look that fails changes nothing: the lease lasts until its deadline.
func (k *term) watch(ctx context.Context) {
	c := k.l.opts.Clock
	unwritten, again := k.firstWrite()
	next := k.firstLook(k.Seen().Elapsed)
	for pause := firstPoll; ; {
		if unwritten && c.Elapsed() >= again {
			unwritten = k.Renew(ctx) != nil // a loss ends it
			again = c.Elapsed() + firstPoll
		}
		if clock.Sleep(ctx, c, min(max(next-c.Elapsed(), 0), clock.Tick)) != nil {
			return
		}
		now := clock.Read(c)
		if now.Elapsed >= k.end() {
			// It is lost, and ctx ends, unless a refresh that was answered in time extends it.
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

// firstWrite reports whether the lock is to be refreshed before its time, and when: at once if it was dated
// before we knew that the wall clock is behind, and after a second if it is exclusive. Then its flag says that
// it is held: acquirers that came at the same time wait to see whether it withdraws.
func (k *term) firstWrite() (bool, time.Duration) {
	now := k.l.opts.Clock.Elapsed()
	if k.l.behind(*k.now.Load()) > margin {
		return true, now
	}
	return k.t.mode == Exclusive, now + firstPoll
}

// firstLook returns when the first look after the acquire is due: after one to two seconds if a
// client of the original protocol can have looked before our put and written after our look.
func (k *term) firstLook(sent time.Duration) time.Duration {
	next := k.nextLook(sent)
	if k.l.opts.Name == "" {
		next = min(next, sent+time.Second+k.l.jitter(time.Second/2))
	}
	return next
}

// nextLook returns when the look after one sent at the given time is due: early by a random
// time, so that many holders do not look at once.
func (k *term) nextLook(sent time.Duration) time.Duration {
	return sent + k.l.opts.Look - k.l.jitter(k.l.opts.Look/20)
}

// errAgain: a look saw what can be an acquirer that is about to withdraw.
var errAgain = errors.New("looking again")

// saw notes when the lock was seen, unless the clocks have moved apart since it was last seen:
// then only reassure can note it.
func (k *term) saw(r clock.Reading) {
	if !r.Parted(k.Seen()) {
		k.Saw(r)
	}
}
