package main

import (
	"regexp"
	"strings"
)

// pairsMutants are bugs where two features of a lock meet.
var pairsMutants = []mutant{
	{"a failed release of another system's lock doesn't count as its end", "cmd/internal/also/lock.go",
		"case replock.EventLost, replock.EventReleased, replock.EventReleaseFailed:", "case replock.EventLost, replock.EventReleased:", own("TestReleaseFails")},
	{"an acquire doesn't wait unless an option says so", queues, "maxWait: Forever, ", "", own("TestWaitIsTheRule")},
	{"a try waits if an option says so", "replock/lock.go", "return l.Shared(ctx, operation, append(slices.Clip(opts), WithWait(0))...)",
		"return l.Shared(ctx, operation, append([]AcquireOption{WithWait(0)}, slices.Clip(opts)...)...)", own("TestWaitIsTheRule")},
	{"each event of a lock's end counts as its end", holding, "return !t.reported.Swap(true)", "return true || t.reported.Swap(true)", test("./replock", "TestEndedOnce")},
	{"a release doesn't count as a lock's end", terms, "case EventLost, EventReleased, EventReleaseFailed:", "case EventLost, EventReleaseFailed:", own("TestEndedOnce")},
	{"a lock of another client that a holder can't read is no conflict", watches, "d.add(s.settled, e.Err)", "_ = s.settled", own("TestUnreadLockIsInDoubt")},
	{"an acquirer reads a body that its listing has read", look, "\t\tadopt(page, others)\n", "", own("TestLookReadsThePage")},
	{"a holder reads a body that its listing has read", watches, "\tadopt(page, suspects)\n", "", own("TestLookReadsThePage")},
	{"a lock beside ours that a read doesn't find is gone, whatever is listed", watches, `o != nil && o.Size > 0 {`, `o != nil && o.Key == "" {`, own("TestUnreadLockIsInDoubt")},
	{"a lock beside ours that was deleted before it was read delays a release", watches, "if page, err = k.firstPage(ctx, k.conflicting()); err != nil {", "if err != nil {", own("TestUnreadLockIsInDoubt")},
	{"a lock beside ours that another one has replaced before it was read delays a release", watches, "replaced = replaced || o != nil && o.ETag != s.ETag", "replaced = replaced && o != nil && o.ETag != s.ETag", own("TestReplacedBeforeItIsRead")},
	{"a release waits for deletes of lock.exclusive after its deadline", withdraws, `context.WithTimeout(ctx, left)`, `context.WithTimeout(ctx, left+time.Hour)`, own("TestReleaseStopsAtTheDeadline")},
	{"a release deletes before the context has ended", "internal/lease/term.go", `	t.cancel(fault.Released)
	t.stop(errStopped)`, `	t.stop(errStopped)`, test("./replock", "TestReleaseEndsTheContextFirst")},
	{"a foreign lock hides behind sixteen waiters", watches, "e != k.t.leftPointer && !e.HasID() {", "e != k.t.leftPointer && len(suspects) < maxReported {", own("TestForeignBehindMany")},
	{"a young lock is foreign until it is read 3 s later", watches, `case e.Err == nil && e.Lease.ID != "":`, `case s.settled && e.Err == nil && e.Lease.ID != "":`, pair("exclusive", "its holder ends soon", "shared acquirers at its end")},
	{"a holder takes a young foreign lock for one that stays, whatever its age", watches, "\t\t\td.young = true\n", "\t\t\t_ = d.young\n", pair("exclusive", "its holder ends soon", "a shared lock of another client")},
	{"a waiter never reads the blocker", queues, `if b == nil || q.hints.store != nil || q.l.pace.first == 0 {`, `if b != nil || q.hints.store != nil || q.l.pace.first == 0 {`, pair("shared", "an exclusive waiter", "")},
	{"in a crowd a shared holder doesn't look at lock.exclusive", watches, "page, err := k.firstPage(ctx, k.l.keys.Exclusive())", "page, err := store.Page{}, error(nil)", pair("shared", "a hundred shared locks", "an exclusive lock of another client")},
	{"Check doesn't look again at what has just come", holds, `if errors.Is(err, errMightWithdraw) && clock.Sleep(`, `if false && clock.Sleep(`, pair("exclusive", "its holder ends soon", "a shared lock of another client")},
	{"a release leaves the flag of an exclusive lock", releases, "go func() { flag <- k.l.takeDownFlag(ctx, k.t) }()", "flag <- nil", pair("exclusive", "a slow store", "")},
	{"an acquirer reads no more than sixteen young locks", look,
		"default:\n\t\t\t\trest = ", "case !f.Young(e):\n\t\t\t\trest = ", pair("exclusive", "a hundred shared locks", "")},
	{"what has just come beside a lock is looked at again only after a whole interval", watches, "next = c.Elapsed() + verdict.Transient", "next = c.Elapsed() + 2*k.l.opts.Look", pair("exclusive", "a shared lock of another client", "")},
	{"a watched lock is never passed", queues, "\tif end := q.l.judges().EndOf(f); end > now {", "\tfor range f.Doubtful {\n\t\td = Forever\n\t}\n\tif end := q.l.judges().EndOf(f); end > now {", pair("exclusive", "seventeen dead locks, perhaps", "")},
	{"three refusals of lock.exclusive end nothing", enters, "spurious := t.refusals >= maxRefused", "spurious := t.refusals > 1000", pair("exclusive", "delete markers that count as objects", "an exclusive waiter")},
	{"an emptied flag is a lock", entries,
		"e.Read, e.Err = true, wire.ErrEmptied\n\t\tcase", "e.Read, e.Err = true, wire.ErrNotFile\n\t\tcase", pair("exclusive", "emptied flags", "")},
	{"a fence is taken only where nothing was waited for", enters, "q.fence && t.fence == 0:", "q.fence && t.fence == 0 && len(t.keys) == 1:", pair("exclusive", "its holder had to wait", "fences")},
	{"no more than a page of stale locks is read", look, `		cursor = page.Next
`, `		if cursor = page.Next; len(f.Stale) > 0 {
			return f, nil
		}
`, pair("exclusive", "pages of two", "seventeen dead locks")},
	{"the own flag counts as missing where its time isn't told", look, `t.listed.flag = o.Size > 0`, `t.listed.flag = o.Size > 0 && !page.Now.IsZero()`, pair("exclusive", "no time in listings", "")},
	{"a waiter loses its place with each attempt", queues, `t.place, q.ticket.ownAttempts = q.ticket.place, t.ownAttempts`, `q.ticket.ownAttempts = t.ownAttempts`, pair("exclusive", "waiters of both modes", "")},
	{"in a crowd a flag that is too large is a look that fails", watches, `flag, err = content{}, nil //`, `_ = flag //`, test("./replock", "^TestLookInACrowd$")},
	{"in a crowd a flag that is gone is a look that fails", watches, `	case errors.Is(err, store.ErrNotFound):
		return page, nil`, `	case errors.Is(err, store.ErrNotFound):
		return page, err`, pair("shared", "break-lock", "a hundred shared locks")},
	{"a resumed exclusive lock has no lock.exclusive of its own", resume, `	if t.mode == Shared {
		return nil
	}
	o := &object`, `	if t.pointer.key != "" {
		return nil
	}
	o := &object`, pair("exclusive", "it is lost and resumed", "")},
	{"of many stale locks sixteen are deleted", reaps, "range slices.Chunk(dead, store.MaxBatch)", "range slices.Chunk(dead[:min(len(dead), atOnce)], store.MaxBatch)", pair("exclusive", "seventeen dead locks", "")},
	{"a shared acquirer is behind no ticket", attempts, "l.keys.SharedFlag(now, id), wire.LastPlace", "l.keys.SharedFlag(now, id), wire.FirstPlace", pair("shared", "an exclusive waiter", "shared acquirers at its end")},
	{"a resumed lock is behind the waiters", resume, "t.place, t.fence = wire.FirstPlace", "t.place, t.fence = wire.LastPlace", pair("exclusive", "it is lost and resumed", "an exclusive waiter")},
}

// pair is the scene of TestPairs in which two features meet, or one alone.
func pair(mode, a, b string) finder {
	name := mode + " lock, " + a
	if b != "" {
		name += ", " + b
	}
	return test("./internal/test/sim", "TestPairs/"+regexp.QuoteMeta(strings.ReplaceAll(name, " ", "_")))
}
