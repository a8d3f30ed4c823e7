package main

const (
	acquire  = "replock/acquire.go"
	wait     = "replock/wait.go"
	judge    = "replock/judge.go"
	look     = "replock/look.go"
	reap     = "replock/reap.go"
	resume   = "replock/resume.go"
	renew    = "replock/refresh.go"
	hold     = "replock/lock.go"
	body     = "replock/body.go"
	request  = "replock/request.go"
	status   = "replock/status.go"
	proofs   = "replock/conditions.go"
	runs     = "internal/refresh/refresh.go"
	schedule = "internal/refresh/schedule.go"
)

// mutants are bugs that somebody could have written.
var mutants = []mutant{
	// Acquire.
	{"an exclusive passes intents that come after its own", look,
		"e.lease.State == stateWaiting && e.Key > t.place", "e.Key > t.place"},
	{"a shared one looks at lock.exclusive alone", look,
		"t.mode == Shared && k == kindShared", "t.mode == Shared && k != kindExclusive"},
	{"an exclusive doesn't look at shared flags", look,
		"t.mode == Shared && k == kindShared", "k == kindShared"},
	{"only the first page of a listing is read", look,
		"cursor = page.Next\n\t}\n}\n\n// errUnlisted", "return f, nil\n\t}\n}\n\n// errUnlisted"},
	{"what can't be read is free", look,
		"e.err = readError{err}", "e.err = errReleased"},
	{"the lease is dated from when the lock was granted", hold,
		"Start: t.sent,", "Start: l.opts.Clock.Elapsed(),"},
	{"who was refused leaves their flag", acquire,
		"return join(l.takeDownExclusive(ctx, t), l.takeDownFlag(ctx, t))", "return l.takeDownExclusive(ctx, t)"},

	// Wait.
	{"who has waited leaves their ticket", wait,
		"q.l.withdraw(ctx, q.ticket, nil)", "_ = ctx"},
	{"a ticket isn't refreshed", wait,
		"return q.ticket.sent + q.l.schedule.Interval", "return q.ticket.sent + 24*time.Hour"},
	{"shared ones don't queue behind one who waits", look,
		"e.lease.State == stateWaiting && e.Key > t.place", "e.lease.State == stateWaiting && (t.mode == Shared || e.Key > t.place)"},
	{"the last come is the first served", look,
		"e.lease.State == stateWaiting && e.Key > t.place", "e.lease.State == stateWaiting && e.Key < t.place"},

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
	{"everybody's ttl is taken for the default one", judge,
		"ttl := e.ttl()\n", "ttl := DefaultTTL\n"},

	{"a ttl of more than a minute is taken for one", judge,
		"ttl := e.ttl()\n", "ttl := min(e.ttl(), DefaultTTL)\n"},
	{"the ttl of other clients is taken for ten seconds", body,
		"foreignTTL = 60 * time.Second", "foreignTTL = 10 * time.Second"},
	{"a shared one doesn't look at lock.exclusive", look,
		"if k == kindUnknown || t.owns(o) {", "if k == kindUnknown || t.owns(o) || t.mode == Shared && k == kindExclusive {"},
	{"break-lock --stale breaks every lock", status,
		"case opts.Stale && i.Verdict", "case false && i.Verdict"},

	// Hold.
	{"Confirm looks at nothing", hold,
		"return nothing{}, k.confirm(ctx, o)", "return nothing{}, nil"},
	{"the deadline is after the lease's end", schedule,
		"Deadline: ttl * 55 / 60,", "Deadline: ttl * 70 / 60,"},
	{"refreshed as late as the lease ends", schedule,
		"Interval: ttl / 2,", "Interval: ttl,"},
	{"a passed deadline is noticed ten seconds later", runs,
		"deadline := last + r.Deadline\n", "deadline := last + r.Deadline + 10*time.Second\n"},
	{"an answer that comes after the deadline revives the lock", runs,
		"case r.Clock.Elapsed() >= deadline:", "case false:"},
	{"a refresh is dated from its answer", renew,
		"renewed := refresh.Renewal{Sent: flag.sent,", "renewed := refresh.Renewal{Sent: k.l.opts.Clock.Elapsed(),"},
	{"a refresh puts back a flag that was deleted", renew,
		"case seen == nil:\n\t\treturn k.broken(o.key, \"it was deleted, by break-lock or by hand\")", "case seen == nil:\n\t\treturn nil"},
	{"a refresh doesn't look whose flag it is", renew,
		"case !k.t.ids[l.ID]:", "case false:"},
	{"a condition is relied on because the store claims it", proofs,
		"p.state.Store(unproven)", "p.state.Store(proven)"},

	{"gives up after the first refresh that fails", schedule,
		"Failures: 3,", "Failures: 1,"},
	{"a request that fails isn't repeated", request,
		"if err == nil || store.Permanent(err) || ctx.Err() != nil {", "if true {"},
	{"to other clients the lock has expired", body,
		"b.ExpiresAt = now.Add(ttl)", "b.ExpiresAt = now.Add(-ttl)"},

	// Pass and resume.
	{"who passes a stale lock doesn't delete it", reap,
		"failed[i] = l.remove(ctx, e.Key)", "failed[i] = nil"},
	{"resumed whether the old flag is there or not", resume,
		"if old == nil || old.Size == 0 {", "if old == nil {\n\t\treturn nil\n\t}\n\tif false {"},
	{"resumed although a late refresh has put the old flag back", resume,
		"written > reapable {", "written > reapable && false {"},
	{"resumed although others may hold", resume,
		"if len(f.live)+len(f.doubtful)+len(f.vanished) == 0 {", "if len(f.live)+len(f.doubtful)+len(f.vanished) >= 0 {"},
	{"resumed although it took longer than the lease", resume,
		"if l.opts.Clock.Elapsed() >= t.deadline {\n\t\treturn giveUp", "if false {\n\t\treturn giveUp"},
	{"the old flag is looked for before the look", resume,
		"\tif err := k.lookAgain(ctx, t); err != nil {\n\t\treturn giveUp(err)\n\t}\n\tif err := k.unpassed(ctx, t); err != nil {\n\t\treturn giveUp(err)\n\t}\n",
		"\tif err := k.unpassed(ctx, t); err != nil {\n\t\treturn giveUp(err)\n\t}\n\tif err := k.lookAgain(ctx, t); err != nil {\n\t\treturn giveUp(err)\n\t}\n"},

	// Bugs that the simulator has found in the engine.
	{"found: the store's time isn't looked for on a later page", look,
		"if len(others) > 0 && !t.st.known() {", "if false {"},
	{"found: flags that were emptied are never removed", acquire,
		"l.sweep(ctx, f.released)", "_ = f.released"},
	{"found: the probe of break-lock --stale is left for good", status,
		"key := l.keys.flag(Shared, l.opts.Clock.Now(), id)", `key := l.opts.Prefix + "lock-probe-" + id`},
	{"found: break-lock --stale judges as of when it has learnt the time", status,
		"return nil, err\n\t\t}\n\t}\n\ttype name", "return nil, err\n\t\t}\n\t\tnow = l.opts.Clock.Elapsed()\n\t}\n\ttype name"},
}
