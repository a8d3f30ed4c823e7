package main

const (
	entering = "replock/enter.go"
	take     = "replock/withdraw.go"
	yield    = "replock/yield.go"
	wait     = "replock/wait.go"
	judge    = "replock/judge.go"
	look     = "replock/look.go"
	sorts    = "replock/sort.go"
	reap     = "replock/reap.go"
	removes  = "replock/removal.go"
	resume   = "replock/resume.go"
	again    = "replock/again.go"
	renew    = "replock/renew.go"
	findOurs = "replock/ours.go"
	hold     = "replock/lock.go"
	body     = "replock/body.go"
	repeats  = "internal/retry/retry.go"
	status   = "replock/status.go"
	proofs   = "replock/conditions.go"
	provesBy = "replock/proveabsent.go"
	looks    = "replock/watch.go"
	stood    = "replock/stoodstill.go"
	trip     = "replock/trips.go"
	names    = "replock/keys.go"
	finite   = "store/finite.go"
	policy   = "cmd/internal/session/policy.go"
	exit     = "cmd/repolock/exit.go"
	runs     = "internal/refresh/refresh.go"
	schedule = "internal/refresh/schedule.go"
	beside   = "replock/heldlook.go"
	count    = "replock/fence.go"
	options  = "replock/options.go"
	boots    = "internal/identity/identity.go"
)

// engineMutants are bugs of the protocol, each of which docs/protocol.md names beside the rule it breaks.
var engineMutants = []mutant{
	// Acquire.
	{"an exclusive passes intents that come after its own", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.kind == kindIntent && place(e.Key) > t.place", seed(205)},
	{"a shared one looks at lock.exclusive alone", look,
		"t.mode == Shared && k == kindShared", "t.mode == Shared && k != kindExclusive", seed(20)},
	{"an exclusive doesn't look at shared flags", look,
		"t.mode == Shared && k == kindShared", "k == kindShared", seed(3)},
	{"only the first page of a listing is read", look,
		"cursor = page.Next\n\t}\n}\n\n// errUnlisted", "return f, nil\n\t}\n}\n\n// errUnlisted", seed(3)},
	{"a lock that can't be read is no lock", sorts,
		"e.err = readError{err}", "e.err = errReleased", seed(48)},
	{"the lease is dated from when the lock was granted", hold,
		"Start: t.sent,", "Start: l.opts.Clock.Elapsed(),", seed(5)},
	{"a refused acquirer leaves its flag", take,
		"return text.Join(err, l.takeDownFlag(step, t))", "return text.Join(err)", seed(1)},

	// Wait.
	{"an acquirer that has waited leaves its ticket", wait,
		"q.l.withdraw(ctx, q.ticket, nil)", "_ = ctx", seed(80)},
	{"a ticket isn't refreshed", wait,
		"return q.ticket.sent + q.l.times.Interval", "return q.ticket.sent + 24*time.Hour", seed(613)},
	{"shared ones don't queue behind a waiter", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && (t.mode == Shared || place(e.Key) > t.place)", seed(329)},
	{"the last to come is served first", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && place(e.Key) < t.place", seed(329)},
	{"an exclusive one doesn't queue behind a shared waiter", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && (e.kind == kindShared || place(e.Key) > t.place)", seed(415)},
	{"a shared waiter leaves no ticket", wait,
		"q.mode == Shared && f.older()", "q.mode == Shared", test("./replock", "^TestWaitingSharedComesNext$")},

	// Live or stale.
	{"stale after half a ttl", judge,
		"e.ModTime.Add(ttl+margin)", "e.ModTime.Add(ttl/2)", seed(29)},
	{"the store's clock alone decides", judge,
		"case known && expired:", "case known:", seed(14)},
	{"this machine's clock alone decides", judge,
		"if known && !st.when(now).After(e.ModTime.Add(ttl+margin)) {", "if false {", seed(4)},
	{"the store's clock is taken to be half a minute ahead", judge,
		"return s.at.Add(elapsed - s.elapsed)", "return s.at.Add(elapsed - s.elapsed + 30*time.Second)", seed(4)},
	{"watched for half a ttl", judge,
		"now-e.since >= ttl {", "now-e.since >= ttl/2 {", seed(171)},
	{"a lock that is refreshed while it is watched counts as unchanged", judge,
		"!ok || e.ETag != o.ETag || !e.ModTime.Equal(o.ModTime) || e.Size != o.Size {", "!ok {", seed(12)},
	{"each lock's ttl is taken for the default one", judge,
		"ttl := e.ttl()\n", "ttl := DefaultTTL\n", seed(13)},

	{"a ttl of more than a minute is taken for one", judge,
		"ttl := e.ttl()\n", "ttl := min(e.ttl(), DefaultTTL)\n", seed(28)},
	{"the ttl of other clients is taken for ten seconds", body,
		"foreignTTL = 60 * time.Second", "foreignTTL = 10 * time.Second", seed(14)},
	{"a shared one doesn't look at lock.exclusive", look,
		"if k == kindUnknown || t.owns(o) {", "if k == kindUnknown || t.owns(o) || t.mode == Shared && k == kindExclusive {", seed(20)},
	{"break-lock --stale breaks every lock", status,
		"(!o.Stale || stale)", "(!stale || stale)", seed(145)},

	// Hold.
	{"Check looks at nothing", hold,
		"err := k.look(ctx)\n\tif errors.Is(err, errAgain)", "err := error(nil)\n\tif errors.Is(err, errAgain)", seed(691)},
	{"the deadline is after the lease's end", schedule,
		"Deadline: ttl * 55 / 60,", "Deadline: ttl * 70 / 60,", seed(25)},
	{"refreshed as late as the lease ends", schedule,
		"Interval: ttl / 2,", "Interval: ttl,", seed(1)},
	{"a passed deadline is noticed ten seconds later", runs,
		"deadline := s.last + r.Deadline\n", "deadline := s.last + r.Deadline + 10*time.Second\n", seed(1)},
	{"a refresh puts back a flag that was deleted", findOurs,
		"case seen == nil:\n\t\treturn r.broken(o.key, \"it was deleted, by break-lock or by hand\")", "case seen == nil:\n\t\treturn nil", seed(120)},
	{"a refresh doesn't look whose flag it is", findOurs,
		"case !r.t.ids[l.ID]:", "case false:", seed(6513)},
	{"a condition is relied on because the store claims it", proofs,
		"c.match.state.Store(int32(p.IfMatch))\n\tc.absent.state.Store(int32(p.IfAbsent))",
		"c.match.state.Store(int32(2 * min(p.IfMatch, store.Claimed)))\n\tc.absent.state.Store(int32(2 * min(p.IfAbsent, store.Claimed)))", seed(2)},

	{"gives up after the first refresh that fails", runs,
		"answered+pause(s.tries, deadline-answered)", "deadline", seed(47)},
	{"sends nothing after the third refresh that fails", runs,
		"answered+pause(s.tries, deadline-answered)",
		"answered+pause(s.tries, deadline-answered)\n\t\tif s.tries >= 3 {\n\t\t\ts.next = deadline\n\t\t}", seed(343)},
	{"a refresh is tried no more often before the deadline", schedule,
		"min(doubled, left/5)", "max(doubled, longestPause)", seed(76)},
	{"an attempt is given up after a while, whatever it waits for", runs,
		"context.WithoutCancel(ctx), deadline-now)", "context.WithoutCancel(ctx), min(deadline-now, s.Deadline/20))", seed(6)},
	{"acquired however slow the store is", trip,
		"window := l.times", "refresh = 0\n\twindow := l.times", seed(8505)},
	{"acquired although nothing is left of the lease", trip,
		"l.opts.Clock.Elapsed()+attempts*refresh >= t.deadline", "l.opts.Clock.Elapsed() >= t.deadline", seed(8505)},
	{"If-Match is relied on although the server only claims it", proofs,
		"c.matchKept = p.IfMatch == store.Kept", "c.matchKept = p.IfMatch != store.Unsupported", seed(71)},

	// Look.
	{"a holder never looks at its lock", hold,
		"go k.watch(watching)", "_ = watching", seed(261)},
	{"a holder looks at its lock each ten minutes", looks,
		"return sent + k.l.opts.Look -", "return sent + 10*time.Minute -", seed(261)},
	{"a machine that stood still only looks whether its lock is there", stood,
		"if !(told && last.stood(now.now, answered) > margin) && !began", "if answered >= 0 || !began", scene("frozen", 498)},
	{"a machine that stood still doesn't look for others", stood,
		"switch err := k.lookAgain(ctx, t); {", "switch err := ctx.Err(); {", test("./replock", "^TestPassedByOneWhoHoldsIsLostAtOnce$")},

	{"a machine that stood still beyond its lease refreshes without If-Match", stood,
		"lost := k.overdue(now.now, ended); lost != nil", "lost := k.overdue(now.now, ended); lost != nil && now.now.IsZero()", test("./replock", "^TestPausedBeyondTheLease$")},
	{"a refresh after a pause counts however late it comes", stood,
		"lost := k.overdue(t.first.now, ended); lost != nil", "lost := k.overdue(t.first.now, ended); lost != nil && ended.IsZero()", test("./replock", "^TestRefreshedBeyondTheLease$")},

	{"a machine that stood still goes on beside one that deleted its flag", resume,
		"err == nil && (own == nil || own.Size == 0)", "err == nil && own != nil && own.Size == 0", test("./replock", "^TestPassedWhileRefreshed$")},
	{"a machine that stood still doesn't look for its flag at the end", stood,
		"if err := k.confirm(ctx, &flag); err != nil {", "if err := k.confirm(ctx, &flag); false {", test("./replock", "^TestPassedBetweenPages$")},
	{"an object that vanished is a conflict for a machine that stood still", again,
		"slices.ContainsFunc(f.doubtful, passed)", "slices.ContainsFunc(slices.Concat(f.doubtful, f.vanished), passed)", test("./replock", "^TestVanishedIsNoConflict$")},

	// Others' lock.exclusive, and two at once.
	{"a shared one deletes lock.exclusive", reap,
		"if e.kind != kindExclusive {", "if e.kind != kindExclusive || t.mode == Shared {", scene("foreign", 3719)},
	{"of two on a slow store the first doesn't wait for the second to go", yield,
		"return !ok || age <= l.transience(t)", "return !ok || age <= transient", seed(1025)},
	{"a shared one gives up before the exclusive one in its way does", yield,
		"waited >= outlastTime+outlastTrips*t.trips.slowest()", "waited >= 0", test("./replock", "^TestRefusedExclusiveHindersNoShared$")},
	{"a release doesn't look whose lock.exclusive it deletes", take,
		"if err != nil || !ours {\n\t\treturn err\n\t}\n\tif etag", "if false {\n\t\treturn err\n\t}\n\tif etag", seed(3)},
	{"a look before a release counts however old it is", take,
		"shown != 0 && l.opts.Clock.Elapsed()-shown <= justNow+3*t.trips.slowest() &&", "shown != 0 &&", test("./replock", "^TestLookBeforeReleaseCounts$")},
	{"a look before a release counts for each request", take,
		"t.shown = 0\n", "_ = shown\n", test("./replock", "^TestLookBeforeReleaseCounts$")},
	{"a conditional deletion is relied on because the server claims it", proofs,
		"p.DeleteIfMatch == store.Kept", "p.DeleteIfMatch != store.Unsupported", test("./replock", "^TestClaimedDeleteNeedsALook$")},
	{"If-None-Match is proven by two puts that were both taken", provesBy,
		"p.learn(false)", "p.learn(a == nil)", seed(45)},
	{"a request that fails isn't repeated", repeats,
		"if err == nil || p.Permanent(err) || ctx.Err() != nil {", "if true {", seed(27)},
	{"to other clients the lock has expired", body,
		"lasts := max(", "lasts := -max(", seed(6)},

	// Pass and resume.
	{"an acquirer that passes a stale lock doesn't delete it", removes,
		"if errs[i] = r.l.remove(ctx, e.Key); errs[i] == nil {", "if errs[i] == nil {", seed(2)},
	{"a flag that a deletion of many has left counts as gone", removes,
		"if deleted[i] {", "if deleted[i] || e != nil {", scene("crowd", 104)},
	{"a deletion of many that failed counts as done", removes,
		"return nil, entries\n\t}\n\tfor", "return entries, nil\n\t}\n\tfor", scene("crowd", 34)},
	{"resumed whether the old flag is there or not", resume,
		"if old == nil || old.Size == 0 {", "if old == nil {\n\t\treturn nil\n\t}\n\tif false {", seed(30)},
	{"resumed although a late refresh has put the old flag back", resume,
		"written > reapable {", "written > reapable && false {", seed(700)},
	{"resumed although others might hold", resume,
		"slices.Concat(f.live, f.doubtful, f.vanished)", "slices.Concat(f.live, f.vanished)", test("./replock", "^TestNoResumeBesideADoubtfulLock$")},
	{"resumed although it took longer than the lease", resume,
		"if l.opts.Clock.Elapsed() >= t.deadline {\n\t\treturn giveUp", "if false {\n\t\treturn giveUp", seed(1141)},

	// Bugs that the tests of then didn't find.
	{"the time since boot is judged at half the ttl", judge,
		"now-sinceBoot > ttl,", "now-sinceBoot > ttl/2,", seed(812)},
	{"resumed on a store without a clock whatever version the flag is", resume,
		"if !k.l.store.Properties().StoreClock && old.ETag != k.t.flag.etag {", "if false {", scene("unclock", 232)},
	{"an attempt can end after the deadline", runs,
		"context.WithTimeout(context.WithoutCancel(ctx), deadline-now)", "context.WithoutCancel(ctx), func() {}", seed(156)},
	{"If-Match is proven although the right ETag is refused", renew,
		"match.learnFrom(err, true)", "match.learn(true)", seed(71)},
	{"resumed although it was released meanwhile", resume,
		"if k.releasing.Load() {\n\t\treturn giveUp(ErrReleased)", "if false {\n\t\treturn giveUp(ErrReleased)", seed(472)},
	{"half of a refresh counts as a success for its caller", runs,
		"done.end(a.err)\n", "if a.renewal.Sent >= s.last {\n\t\ta.err = nil\n\t}\n\tdone.end(a.err)\n", test("./replock", "^TestRenewNeedsTheWholeRefresh$")},
	{"a ticket that is gone isn't noticed behind a live lock", look,
		"t.polls && t.listedAsPromised(page) != nil", "false", seed(1429)},

	// Encrypted bodies, and other clients beside a held lock.
	{"an encrypted body is no lock", body,
		"return nil, errEncrypted", "return nil, errReleased", seed(14)},
	{"the store's clock alone calls an encrypted lock dead", judge,
		"expired = l.longDead(e, st, now)\n\t}", "expired = true\n\t}", seed(14)},
	{"an encrypted lock is dead after a quarter of an hour", judge,
		"const longDead = 15 * time.Hour", "const longDead = 15 * time.Minute", seed(275)},
	{"an encrypted lock is held for ever", judge,
		"case e.err != nil && !errors.Is(e.err, errEncrypted):", "case e.err != nil:", seed(55)},
	{"an encrypted lock that has long been dead is watched", judge,
		"expired = l.longDead(e, st, now)\n\t}", "_ = now\n\t}", seed(1926)},
	{"a lock of another client beside ours is no loss", beside,
		"e.verdict != Stale && e.verdict != Released {", "false {", scene("foreign", 662)},
	{"an encrypted lock beside ours is no loss", beside,
		"if e.err == nil && e.lease.ID != \"\" {", "if e.err != nil || e.lease.ID != \"\" {", scene("sealed", 524)},

	// Fences.
	{"a fence is written whatever is stored by then", count,
		"opts.IfAbsent, opts.IfMatch = false, c.object.ETag", "opts.IfAbsent = false", seed(62)},
	{"a fence is the number before once more", count,
		"Fence: last.Fence + 1,", "Fence: max(last.Fence, 1),", seed(62)},
	{"another lock's number is taken for the own one", count,
		"if last.ID == id {", "if last.ID != \"\" {", seed(62)},
	{"a resumed lock has no fence", resume,
		"l.hold(t, k.fence)", "l.hold(t, 0)", seed(451)},
	{"a fence relies on conditions that the store only claims", count,
		"p.IfAbsent != store.Kept || !l.conditions.match.holds()", "p.IfAbsent == store.Unsupported", seed(12)},

	// Several locks of one process or repository, and the clocks of one machine.
	{"the name of a lock is ignored", options,
		"o.Prefix = DefaultPrefix + \"locks/\" + o.Name + \"/\"", "o.Prefix = DefaultPrefix", scene("several", 1)},
	{"two locks of one process don't conflict", sorts,
		"case t.wrote(e):", "case t.wrote(e) || e.err == nil && e.lease.HostID == l.self.HostID && e.lease.PID == l.self.PID:", scene("several", 1)},
	{"on a local disk the wall clock confirms itself", judge,
		"if known && l.oneClock(e) {", "if false {", seed(958)},
	{"the times since boot of two time namespaces are compared", boots,
		"p.BootID == q.BootID && p.TimeNamespace != \"\" && p.TimeNamespace == q.TimeNamespace", "p.BootID == q.BootID", seed(1287)},
	{"the times since two boots are compared", boots,
		"p.BootID != \"\" && p.BootID == q.BootID && p.TimeNamespace", "p.TimeNamespace", seed(143)},
	{"a lock from before the machine was booted is watched", judge,
		" && !l.self.Rebooted(e.lease.Process)", "", test("./replock", "^TestLocalDiskAfterABoot$")},
	{"another machine counts as an earlier boot of this one", boots,
		"p.HostID != \"\" && p.HostID == q.HostID && p.BootID != \"\"", "p.BootID != \"\"", scene("local", 1351)},

	// What isn't simulated.
	{"a command runs without its lock whatever failed", policy,
		"!not.Answered && errors.Is(err, store.ErrUnreachable)", "err != store.ErrUnreachable", test("./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^400")},
	{"an unforeseen error is an unreachable store", exit,
		`return "failed", exitFailed, ""`, `return "store_unavailable", exitUnavailable, ""`, test("./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^(429|520)")},
	{"an object in the place of lock.exclusive that is no file is no lock", names,
		"return kindOdd", "return kindUnknown", test("./replock", "^TestOddObjects$")},
	{"a holder doesn't look soon after it was let in", looks,
		"next = min(next, sent+time.Second", "_ = min(next, sent+time.Second", test("./replock", "^TestLooksSoonAfterAcquiring$")},
	{"to other clients a lock lasts no longer than its ttl", body,
		"l.times.Deadline+foreignTTL", "l.times.Deadline", test("./replock", "^TestExpiresAMinuteAhead$")},
	{"to other clients a lock expires by its holder's clock", body,
		"now.Add(l.behind(st) + lasts)", "now.Add(lasts)", test("./replock", "^TestExpiresByTheStoresClock$")},
	{"a listing may begin again", finite,
		"case o.Key <= next.last:", "case false:", test("./replock", "^TestListingsEnd$")},
	{"a ticket's age is that of its mod time, whenever it is seen", look,
		"t.polls && later && t.st.known()", "false", test("./replock", "^TestTicketOnALaterPage$")},

	// Bugs that the simulator has found in the engine.
	{"found: the store's time isn't looked for on a later page", look,
		"if len(others) > 0 && !t.st.known() {", "if false {", seed(807)},
	{"found: flags that were emptied are never removed", entering,
		"l.sweep(ctx, f.released)", "_ = f.released", seed(1)},
}
