package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// TestWhatHadEndedAtTheLastLookMayBeBroken: a foreign lock that comes back between the last look of a
// break-lock and its delete was free by its own protocol. One that was live at that look must stand.
func TestWhatHadEndedAtTheLastLookMayBeBroken(t *testing.T) {
	const key = "index/lock.shared/1"
	look := time.Now()
	ago := func(d time.Duration) time.Time { return look.Add(-d) }
	other, holder := &client{name: "janitor"}, &client{name: "c1"}
	for name, c := range map[string]struct {
		wrote  time.Time // when the flag had last been written when it was listed
		unseen bool
		want   bool
	}{
		"ended":               {wrote: ago(70 * time.Second)},
		"live":                {wrote: ago(50 * time.Second), want: true},
		"not stored":          {},
		"not looked at again": {unseen: true, want: true},
	} {
		// Its holder has written it twice since then.
		present := presence{client: holder, since: ago(200 * time.Second), before: ago(-30 * time.Second), written: ago(-60 * time.Second)}
		w := &world{janitor: other, monitor: monitor{
			seen:    map[sighted]sighting{{other.name, key}: {handed: look, listed: look, wrote: c.wrote}},
			present: map[string]presence{key: present},
		}}
		if c.unseen {
			w.seen = map[sighted]sighting{{other.name, key}: {handed: look}}
		}
		got := w.stoodWhenListed(holder, key)
		assert.That(t, got == c.want, "%s: stoodWhenListed is %v", name, got)
	}
}

// TestLockRestsOnTheLookBeforeIt: the look that a lock rests on is not the holder's first one, although
// that can be answered before the call returns.
func TestLockRestsOnTheLookBeforeIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := &holding{step: step{name: "c1.1"}, lock: identified{id: "1"}}
		w := &world{monitor: monitor{looks: map[string][]time.Time{}, grants: map[string]time.Time{}}}
		at := w.lookOf(h)
		assert.That(t, at.IsZero(), "a lock without a look rests on that of %v", at)
		look := func() time.Time {
			time.Sleep(time.Second)
			w.looks["c1.1"] = append(w.looks["c1.1"], time.Now())
			return time.Now()
		}
		look() // of an attempt that was refused
		restsOn := look()
		time.Sleep(time.Second)
		at = w.lookOf(h)
		assert.That(t, at.Equal(restsOn), "the lock that is granted now rests on the look of %v, want %v", at, restsOn)
		w.decided("1")
		w.looks["c1.1"] = append(w.looks["c1.1"], time.Now()) // the holder's first one
		time.Sleep(time.Second)
		at = w.lookOf(h)
		assert.That(t, at.Equal(restsOn), "the lock rests on the look of %v, want %v", at, restsOn)
	})
}

// identified is a lock that has an id alone.
type identified struct {
	Held
	id string
}

func (i identified) ID() string { return i.id }

// TestPauseOfAWaiter: the judge computes the longest pause of a waiter as docs/evidence/protocol.md does.
func TestPauseOfAWaiter(t *testing.T) {
	began := time.Now()
	for _, c := range []struct {
		before       int
		waited, poll time.Duration
		reads        float64
		want         time.Duration
	}{
		{0, time.Second, leastPoll, 0, 375 * time.Millisecond},
		{1, time.Second, leastPoll, 0, 750 * time.Millisecond},
		{1, 100 * time.Second, mostPoll, 0, 3 * time.Second},
		{0, time.Hour, mostPoll, 0, 7500 * time.Millisecond},
		{2, 10 * time.Second, leastPoll, 0, 1125 * time.Millisecond},
		{9, 100 * time.Second, leastPoll, 0, 10800 * time.Millisecond},     // the next poll: 4p + 5 s + n/5 s
		{1, time.Hour, leastPoll, 0, 4 * time.Second},                      // the next poll: 2p (n + 1)
		{0, 0, mostPoll, freeReads, 1375 * time.Millisecond},               // no read is left
		{0, 10 * time.Second, mostPoll, freeReads, 375 * time.Millisecond}, // ten are left again
	} {
		k := pace{before: c.before, since: began, reads: began, poll: c.poll, spent: c.reads}
		got := k.pause(&plan{}, rest{from: began.Add(c.waited)})
		assert.That(t, got == c.want, "behind %d for %v: a pause lasts up to %v, want %v", c.before, c.waited, got, c.want)
	}
}

// TestFenceIsNoAttempt: the number that a fence stores is no flag, so the attempt still ends when its flag is deleted.
func TestFenceIsNoAttempt(t *testing.T) {
	flag, number := replock.DefaultPrefix+"lock.intent/1", replock.DefaultPrefix+"lock-fence/2"
	k := &pace{step: step{name: "c1.1", mode: replock.Exclusive, fence: true}}
	w := &world{}
	c := &client{}
	follow := func(op, key string) {
		r := &request{op: op, key: key, pace: k}
		if op == "put" {
			r.body = []byte("{}")
		}
		w.follows(c, r, nil)
	}
	follow("put", flag)
	follow("put", number)
	assert.That(t, k.flag == flag, "after the fence's put the attempt's flag is %q, want %q", k.flag, flag)
	follow("delete", flag)
	assert.That(t, k.flag == "" && len(k.tries) == 1 && !k.tries[0].to.IsZero(), "after its deletion the flag is %q, and the attempts are %v", k.flag, k.tries)
}

// TestFailedAttemptIsExcused: after an attempt that the store has failed, a waiter knows no blocker, and so waits for its
// next poll, whether its ticket was put meanwhile or not. The requests until its lock are counted from the failure.
func TestFailedAttemptIsExcused(t *testing.T) {
	k := &pace{step: step{name: "c1.1", mode: replock.Exclusive}}
	w := &world{plan: &plan{}}
	w.paces = map[string]*pace{k.step.name: k}
	sent := 0
	for _, c := range []struct {
		op      string
		err     error
		excused bool
	}{
		{"list", nil, false}, {"list", context.DeadlineExceeded, true}, {"delete", nil, true}, {"put", nil, true}, {"list", nil, false},
		{"put", context.DeadlineExceeded, true}, {"get", nil, true}, {"withdrawn", nil, true}, {"put", nil, true}, {"get", &store.Error{Err: store.ErrNotFound}, false},
	} {
		r := &request{op: c.op, step: &k.step}
		w.sends(r)
		switch c.op {
		case "list":
			k.flag = "flag"
		case "withdrawn":
			k.flag = ""
		}
		w.rested(r, c.err)
		if sent++; errors.Is(c.err, context.DeadlineExceeded) {
			sent = 0
		}
		assert.That(t, k.excused == c.excused && len(k.sends) == sent, "after a %s, %v: excused %t, %d requests", c.op, c.err, k.excused, len(k.sends))
	}
}

// TestCopyRemembersTheLook: a copy of a client knows what the client's last look before the copy has shown.
func TestCopyRemembersTheLook(t *testing.T) {
	const key = "index/lock.exclusive"
	first, other := &client{name: "c1"}, &client{name: "c2"}
	pair := &twins{first: first, copy: &client{name: "c1"}}
	w := &world{monitor: monitor{turns: map[turn]*client{{"c1", "c1.1", key}: first, {"c1", "c1.2", key}: other, {"c2", "c2.1", key}: other}}}
	w.remembers(pair)
	assert.Equal(t, len(w.turns), 5)
	assert.That(t, w.turns[turn{"c1", "c1.1'", key}] == pair.copy && w.turns[turn{"c1", "c1.2'", key}] == other, "%v", w.turns)
}

// TestPutFromBeforeTheCopy: a put that was sent before a machine was copied has a body that both twins know. So it takes
// no lock from either, although the store applies it afterwards.
func TestPutFromBeforeTheCopy(t *testing.T) {
	const key = "index/lock.exclusive"
	now := time.Now()
	pair := &twins{part: now, first: &client{}, copy: &client{}}
	pair.first.twins, pair.copy.twins = pair, pair
	w := &world{mem: memory.New(memory.Options{})}
	assert.OK(t, assert.Err(w.mem.Put(t.Context(), key, []byte("body"), store.PutOptions{})))
	for _, c := range []struct {
		sent, was time.Time
		by        *client // who put what is there
		replaces  bool
	}{
		{now.Add(-1), now.Add(-2), pair.first, false},
		{now, now.Add(-1), pair.first, true},
		{now.Add(1), now, pair.first, false},
		{now.Add(1), now, pair.copy, true},
	} {
		pair.replaced = time.Time{}
		w.present = map[string]presence{key: {client: c.by, handed: c.was}}
		w.turnover(pair.first, &request{op: "put", key: key, body: []byte("next"), handed: c.sent})()
		assert.That(t, c.replaces != pair.replaced.IsZero(), "%+v: replaced at %v", c, pair.replaced)
	}
}
