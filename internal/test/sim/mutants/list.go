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

// mutants are bugs that a change could bring.
var mutants = []mutant{
	// Acquire.
	{"an exclusive passes intents that come after its own", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.kind == kindIntent && place(e.Key) > t.place"},
	{"a shared one looks at lock.exclusive alone", look,
		"t.mode == Shared && k == kindShared", "t.mode == Shared && k != kindExclusive"},
	{"an exclusive doesn't look at shared flags", look,
		"t.mode == Shared && k == kindShared", "k == kindShared"},
	{"only the first page of a listing is read", look,
		"cursor = page.Next\n\t}\n}\n\n// errUnlisted", "return f, nil\n\t}\n}\n\n// errUnlisted"},
	{"a lock that can't be read is no lock", sorts,
		"e.err = readError{err}", "e.err = errReleased"},
	{"the lease is dated from when the lock was granted", hold,
		"Start: t.sent,", "Start: l.opts.Clock.Elapsed(),"},
	{"a refused acquirer leaves its flag", take,
		"return text.Join(err, l.takeDownFlag(step, t))", "return text.Join(err)"},

	// Wait.
	{"an acquirer that has waited leaves its ticket", wait,
		"q.l.withdraw(ctx, q.ticket, nil)", "_ = ctx"},
	{"a ticket isn't refreshed", wait,
		"return q.ticket.sent + q.l.times.Interval", "return q.ticket.sent + 24*time.Hour"},
	{"shared ones don't queue behind a waiter", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && (t.mode == Shared || place(e.Key) > t.place)"},
	{"the last to come is served first", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && place(e.Key) < t.place"},
	{"an exclusive one doesn't queue behind a shared waiter", sorts,
		"e.isTicket() && place(e.Key) > t.place", "e.isTicket() && (e.kind == kindShared || place(e.Key) > t.place)"},
	{"a shared waiter leaves no ticket", wait,
		"q.mode == Shared && f.older()", "q.mode == Shared"},

	// Live or stale.
	{"stale after half a ttl", judge,
		"e.ModTime.Add(ttl+margin)", "e.ModTime.Add(ttl/2)"},
	{"the store's clock alone decides", judge,
		"case known && expired:", "case known:"},
	{"this machine's clock alone decides", judge,
		"if known && !st.when(now).After(e.ModTime.Add(ttl+margin)) {", "if false {"},
	{"the store's clock is taken to be half a minute ahead", judge,
		"return s.at.Add(elapsed - s.elapsed)", "return s.at.Add(elapsed - s.elapsed + 30*time.Second)"},
	{"watched for half a ttl", judge,
		"now-e.since >= ttl {", "now-e.since >= ttl/2 {"},
	{"a lock that is refreshed while it is watched counts as unchanged", judge,
		"!ok || e.ETag != o.ETag || !e.ModTime.Equal(o.ModTime) || e.Size != o.Size {", "!ok {"},
	{"each lock's ttl is taken for the default one", judge,
		"ttl := e.ttl()\n", "ttl := DefaultTTL\n"},

	{"a ttl of more than a minute is taken for one", judge,
		"ttl := e.ttl()\n", "ttl := min(e.ttl(), DefaultTTL)\n"},
	{"the ttl of other clients is taken for ten seconds", body,
		"foreignTTL = 60 * time.Second", "foreignTTL = 10 * time.Second"},
	{"a shared one doesn't look at lock.exclusive", look,
		"if k == kindUnknown || t.owns(o) {", "if k == kindUnknown || t.owns(o) || t.mode == Shared && k == kindExclusive {"},
	{"break-lock --stale breaks every lock", status,
		"(!o.Stale || stale)", "(!stale || stale)"},

	// Hold.
	{"Check looks at nothing", hold,
		"err := k.look(ctx)\n\tif errors.Is(err, errAgain)", "err := error(nil)\n\tif errors.Is(err, errAgain)"},
	{"the deadline is after the lease's end", schedule,
		"Deadline: ttl * 55 / 60,", "Deadline: ttl * 70 / 60,"},
	{"refreshed as late as the lease ends", schedule,
		"Interval: ttl / 2,", "Interval: ttl,"},
	{"a passed deadline is noticed ten seconds later", runs,
		"deadline := s.last + r.Deadline\n", "deadline := s.last + r.Deadline + 10*time.Second\n"},
	{"a refresh puts back a flag that was deleted", findOurs,
		"case seen == nil:\n\t\treturn r.broken(o.key, \"it was deleted, by break-lock or by hand\")", "case seen == nil:\n\t\treturn nil"},
	{"a refresh doesn't look whose flag it is", findOurs,
		"case !r.t.ids[l.ID]:", "case false:"},
	{"a condition is relied on because the store claims it", proofs,
		"c.match.state.Store(int32(p.IfMatch))\n\tc.absent.state.Store(int32(p.IfAbsent))",
		"c.match.state.Store(int32(2 * min(p.IfMatch, store.Claimed)))\n\tc.absent.state.Store(int32(2 * min(p.IfAbsent, store.Claimed)))"},

	{"gives up after the first refresh that fails", runs,
		"answered+pause(s.tries, deadline-answered)", "deadline"},
	{"sends nothing after the third refresh that fails", runs,
		"answered+pause(s.tries, deadline-answered)",
		"answered+pause(s.tries, deadline-answered)\n\t\tif s.tries >= 3 {\n\t\t\ts.next = deadline\n\t\t}"},
	{"a refresh is tried no more often before the deadline", schedule,
		"min(doubled, left/5)", "max(doubled, longestPause)"},
	{"an attempt is given up after a while, whatever it waits for", runs,
		"context.WithoutCancel(ctx), deadline-now)", "context.WithoutCancel(ctx), min(deadline-now, s.Deadline/20))"},
	{"acquired however slow the store is", trip,
		"window := l.times", "refresh = 0\n\twindow := l.times"},
	{"acquired although nothing is left of the lease", trip,
		"l.opts.Clock.Elapsed()+attempts*refresh >= t.deadline", "l.opts.Clock.Elapsed() >= t.deadline"},
	{"If-Match is relied on although the server only claims it", proofs,
		"c.matchKept = p.IfMatch == store.Kept", "c.matchKept = p.IfMatch != store.Unsupported"},

	// Look.
	{"a holder never looks at its lock", hold,
		"go k.watch(watching)", "_ = watching"},
	{"a holder looks at its lock each ten minutes", looks,
		"return sent + k.l.opts.Look -", "return sent + 10*time.Minute -"},
	{"a machine that stood still only looks whether its lock is there", stood,
		"if !(told && last.stood(now.now, answered) > margin) && !began", "if answered >= 0 || !began"},
	{"a machine that stood still doesn't look for others", stood,
		"switch err := k.lookAgain(ctx, t); {", "switch err := ctx.Err(); {"},

	{"a machine that stood still beyond its lease refreshes without If-Match", stood,
		"lost := k.overdue(now.now, ended); lost != nil", "lost := k.overdue(now.now, ended); lost != nil && now.now.IsZero()"},
	{"a refresh after a pause counts however late it comes", stood,
		"lost := k.overdue(t.first.now, ended); lost != nil", "lost := k.overdue(t.first.now, ended); lost != nil && ended.IsZero()"},

	{"a machine that stood still goes on beside one that deleted its flag", resume,
		"err == nil && (own == nil || own.Size == 0)", "err == nil && own != nil && own.Size == 0"},
	{"a machine that stood still doesn't look for its flag at the end", stood,
		"if err := k.confirm(ctx, &flag); err != nil {", "if err := k.confirm(ctx, &flag); false {"},
	{"an object that vanished is a conflict for a machine that stood still", again,
		"slices.ContainsFunc(f.doubtful, passed)", "slices.ContainsFunc(slices.Concat(f.doubtful, f.vanished), passed)"},

	// Others' lock.exclusive, and two at once.
	{"a shared one deletes lock.exclusive", reap,
		"if e.kind != kindExclusive {", "if e.kind != kindExclusive || t.mode == Shared {"},
	{"of two on a slow store the first doesn't wait for the second to go", yield,
		"return !ok || age <= l.transience(t)", "return !ok || age <= transient"},
	{"a shared one gives up before the exclusive one in its way does", yield,
		"waited >= outlastTime+outlastTrips*t.trips.slowest()", "waited >= 0"},
	{"a release doesn't look whose lock.exclusive it deletes", take,
		"if err != nil || !ours {\n\t\treturn err\n\t}\n\tif etag", "if false {\n\t\treturn err\n\t}\n\tif etag"},
	{"a look before a release counts however old it is", take,
		"shown != 0 && l.opts.Clock.Elapsed()-shown <= justNow+3*t.trips.slowest() &&", "shown != 0 &&"},
	{"a look before a release counts for each request", take,
		"t.shown = 0\n", "_ = shown\n"},
	{"a conditional deletion is relied on because the server claims it", proofs,
		"p.DeleteIfMatch == store.Kept", "p.DeleteIfMatch != store.Unsupported"},
	{"If-None-Match is proven by two puts that were both taken", provesBy,
		"p.learn(false)", "p.learn(a == nil)"},
	{"a request that fails isn't repeated", repeats,
		"if err == nil || p.Permanent(err) || ctx.Err() != nil {", "if true {"},
	{"to other clients the lock has expired", body,
		"lasts := max(", "lasts := -max("},

	// Pass and resume.
	{"an acquirer that passes a stale lock doesn't delete it", removes,
		"if errs[i] = r.l.remove(ctx, e.Key); errs[i] == nil {", "if errs[i] == nil {"},
	{"a flag that a deletion of many has left counts as gone", removes,
		"if deleted[i] {", "if deleted[i] || e != nil {"},
	{"a deletion of many that failed counts as done", removes,
		"return nil, entries\n\t}\n\tfor", "return entries, nil\n\t}\n\tfor"},
	{"resumed whether the old flag is there or not", resume,
		"if old == nil || old.Size == 0 {", "if old == nil {\n\t\treturn nil\n\t}\n\tif false {"},
	{"resumed although a late refresh has put the old flag back", resume,
		"written > reapable {", "written > reapable && false {"},
	{"resumed although others might hold", resume,
		"slices.Concat(f.live, f.doubtful, f.vanished)", "slices.Concat(f.live, f.vanished)"},
	{"resumed although it took longer than the lease", resume,
		"if l.opts.Clock.Elapsed() >= t.deadline {\n\t\treturn giveUp", "if false {\n\t\treturn giveUp"},

	// Bugs that the tests of then didn't find.
	{"the time since boot is judged at half the ttl", judge,
		"now-sinceBoot > ttl,", "now-sinceBoot > ttl/2,"},
	{"resumed on a store without a clock whatever version the flag is", resume,
		"if !k.l.store.Properties().StoreClock && old.ETag != k.t.flag.etag {", "if false {"},
	{"an attempt can end after the deadline", runs,
		"context.WithTimeout(context.WithoutCancel(ctx), deadline-now)", "context.WithoutCancel(ctx), func() {}"},
	{"If-Match is proven although the right ETag is refused", renew,
		"match.learnFrom(err, true)", "match.learn(true)"},
	{"resumed although it was released meanwhile", resume,
		"if k.releasing.Load() {\n\t\treturn giveUp(ErrReleased)", "if false {\n\t\treturn giveUp(ErrReleased)"},
	{"half of a refresh counts as a success for its caller", runs,
		"done.end(a.err)\n", "if a.renewal.Sent >= s.last {\n\t\ta.err = nil\n\t}\n\tdone.end(a.err)\n"},
	{"a ticket that is gone isn't noticed behind a live lock", look,
		"t.polls && t.listedAsPromised(page) != nil", "false"},

	// Encrypted bodies, and other clients beside a held lock.
	{"an encrypted body is no lock", body,
		"return nil, errEncrypted", "return nil, errReleased"},
	{"the store's clock alone calls an encrypted lock dead", judge,
		"expired = l.longDead(e, st, now)\n\t}", "expired = true\n\t}"},
	{"an encrypted lock is dead after a quarter of an hour", judge,
		"const longDead = 15 * time.Hour", "const longDead = 15 * time.Minute"},
	{"an encrypted lock is held for ever", judge,
		"case e.err != nil && !errors.Is(e.err, errEncrypted):", "case e.err != nil:"},
	{"an encrypted lock that has long been dead is watched", judge,
		"expired = l.longDead(e, st, now)\n\t}", "_ = now\n\t}"},
	{"a lock of another client beside ours is no loss", beside,
		"e.verdict != Stale && e.verdict != Released {", "false {"},
	{"an encrypted lock beside ours is no loss", beside,
		"if e.err == nil && e.lease.ID != \"\" {", "if e.err != nil || e.lease.ID != \"\" {"},

	// Fences.
	{"a fence is written whatever is stored by then", count,
		"opts.IfAbsent, opts.IfMatch = false, c.object.ETag", "opts.IfAbsent = false"},
	{"a fence is the number before once more", count,
		"Fence: last.Fence + 1,", "Fence: max(last.Fence, 1),"},
	{"another lock's number is taken for the own one", count,
		"if last.ID == id {", "if last.ID != \"\" {"},
	{"a resumed lock has no fence", resume,
		"l.hold(t, k.fence)", "l.hold(t, 0)"},
	{"a fence relies on conditions that the store only claims", count,
		"p.IfAbsent != store.Kept || !l.conditions.match.holds()", "p.IfAbsent == store.Unsupported"},

	// Several locks of one process or repository, and the clocks of one machine.
	{"the name of a lock is ignored", options,
		"o.Prefix = DefaultPrefix + \"locks/\" + o.Name + \"/\"", "o.Prefix = DefaultPrefix"},
	{"two locks of one process don't conflict", sorts,
		"case t.wrote(e):", "case t.wrote(e) || e.err == nil && e.lease.HostID == l.self.HostID && e.lease.PID == l.self.PID:"},
	{"on a local disk the wall clock confirms itself", judge,
		"if known && l.oneClock(e) {", "if false {"},
	{"the times since boot of two time namespaces are compared", boots,
		"p.BootID == q.BootID && p.TimeNamespace != \"\" && p.TimeNamespace == q.TimeNamespace", "p.BootID == q.BootID"},
	{"the times since two boots are compared", boots,
		"p.BootID != \"\" && p.BootID == q.BootID && p.TimeNamespace", "p.TimeNamespace"},
	{"a lock from before the machine was booted is watched", judge,
		" && !l.self.Rebooted(e.lease.Process)", ""},
	{"another machine counts as an earlier boot of this one", boots,
		"p.HostID != \"\" && p.HostID == q.HostID && p.BootID != \"\"", "p.BootID != \"\""},

	// What isn't simulated.
	{"a command runs without its lock whatever failed", policy,
		"!not.Answered && errors.Is(err, store.ErrUnreachable)", "err != store.ErrUnreachable"},
	{"an unforeseen error is an unreachable store", exit,
		`return "failed", exitFailed, ""`, `return "store_unavailable", exitUnavailable, ""`},
	{"an object in the place of lock.exclusive that is no file is no lock", names,
		"return kindOdd", "return kindUnknown"},
	{"a holder doesn't look soon after it was let in", looks,
		"next = min(next, sent+time.Second", "_ = min(next, sent+time.Second"},
	{"to other clients a lock lasts no longer than its ttl", body,
		"l.times.Deadline+foreignTTL", "l.times.Deadline"},
	{"to other clients a lock expires by its holder's clock", body,
		"now.Add(l.behind(st) + lasts)", "now.Add(lasts)"},
	{"a listing may begin again", finite,
		"case o.Key <= next.last:", "case false:"},
	{"a ticket's age is that of its mod time, whenever it is seen", look,
		"t.polls && later && t.st.known()", "false"},

	// Bugs that the simulator has found in the engine.
	{"found: the store's time isn't looked for on a later page", look,
		"if len(others) > 0 && !t.st.known() {", "if false {"},
	{"found: flags that were emptied are never removed", entering,
		"l.sweep(ctx, f.released)", "_ = f.released"},
}

// about are the bugs that are looked for in histories of one kind alone, since others
// seldom bring about what they need.
var about = map[string]string{
	"a machine that stood still only looks whether its lock is there": "frozen",
	"a shared one deletes lock.exclusive":                             "foreign",
	"a ticket that is gone isn't noticed behind a live lock":          "evict",
	"resumed on a store without a clock whatever version the flag is": "unclock",
	"an encrypted body is no lock":                                    "sealed",
	"the store's clock alone calls an encrypted lock dead":            "sealed",
	"an encrypted lock is dead after a quarter of an hour":            "sealed",
	"an encrypted lock is held for ever":                              "sealed",
	"an encrypted lock that has long been dead is watched":            "sealed",
	"a lock of another client beside ours is no loss":                 "foreign",
	"an encrypted lock beside ours is no loss":                        "sealed",
	"a fence is written whatever is stored by then":                   "fenced",
	"a fence is the number before once more":                          "fenced",
	"another lock's number is taken for the own one":                  "fenced",
	"a resumed lock has no fence":                                     "fenced",
	"a fence relies on conditions that the store only claims":         "fenced",
	"the name of a lock is ignored":                                   "several",
	"two locks of one process don't conflict":                         "several",
	"on a local disk the wall clock confirms itself":                  "local",
	"the times since boot of two time namespaces are compared":        "local",
	"another machine counts as an earlier boot of this one":           "local",
	"a flag that a deletion of many has left counts as gone":          "crowd",
	"a deletion of many that failed counts as done":                   "crowd",
}

// tested are the bugs that a test of their own finds.
var tested = map[string]struct{ pkg, run string }{
	"a command runs without its lock whatever failed":                        {"./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^400"},
	"an unforeseen error is an unreachable store":                            {"./cmd/repolock", "^TestOnlySilenceIsUnreachable$/^(429|520)"},
	"an object in the place of lock.exclusive that is no file is no lock":    {"./replock", "^TestOddObjects$"},
	"a holder doesn't look soon after it was let in":                         {"./replock", "^TestLooksSoonAfterAcquiring$"},
	"to other clients a lock lasts no longer than its ttl":                   {"./replock", "^TestExpiresAMinuteAhead$"},
	"to other clients a lock expires by its holder's clock":                  {"./replock", "^TestExpiresByTheStoresClock$"},
	"a listing may begin again":                                              {"./replock", "^TestListingsEnd$"},
	"a shared one gives up before the exclusive one in its way does":         {"./replock", "^TestRefusedExclusiveHindersNoShared$"},
	"a ticket's age is that of its mod time, whenever it is seen":            {"./replock", "^TestTicketOnALaterPage$"},
	"a look before a release counts however old it is":                       {"./replock", "^TestLookBeforeReleaseCounts$"},
	"a look before a release counts for each request":                        {"./replock", "^TestLookBeforeReleaseCounts$"},
	"a conditional deletion is relied on because the server claims it":       {"./replock", "^TestClaimedDeleteNeedsALook$"},
	"a lock from before the machine was booted is watched":                   {"./replock", "^TestLocalDiskAfterABoot$"},
	"a shared waiter leaves no ticket":                                       {"./replock", "^TestWaitingSharedComesNext$"},
	"half of a refresh counts as a success for its caller":                   {"./replock", "^TestRenewNeedsTheWholeRefresh$"},
	"a machine that stood still beyond its lease refreshes without If-Match": {"./replock", "^TestPausedBeyondTheLease$"},
	"a refresh after a pause counts however late it comes":                   {"./replock", "^TestRefreshedBeyondTheLease$"},
	"a machine that stood still doesn't look for others":                     {"./replock", "^TestPassedByOneWhoHoldsIsLostAtOnce$"},
	"a machine that stood still goes on beside one that deleted its flag":    {"./replock", "^TestPassedWhileRefreshed$"},
	"a machine that stood still doesn't look for its flag at the end":        {"./replock", "^TestPassedBetweenPages$"},
	"an object that vanished is a conflict for a machine that stood still":   {"./replock", "^TestVanishedIsNoConflict$"},
	// Histories find it in the look of a machine that stood still, which has a mutant of its own.
	"resumed although others might hold": {"./replock", "^TestNoResumeBesideADoubtfulLock$"},
}
