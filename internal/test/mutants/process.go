package main

const (
	guards    = "internal/procgroup/guard/guard.go"
	follows   = "internal/procgroup/guard_client.go"
	groups    = "internal/procgroup/group.go"
	groupRuns = "internal/procgroup/group_run.go"
	jobs      = "internal/procgroup/jobcontrol.go"
	runsOn    = "internal/procgroup/runaways.go"
	sweeps    = "internal/procgroup/sweep_linux.go"
	shell     = "internal/procgroup/backstop.go"
	starts    = "internal/procgroup/starter.go"
)

// processMutants are bugs of the processes under a lock, and of torture's judge.
var processMutants = []mutant{
	// The guard.
	{"the guard leaves the group alone when we are gone", guards,
		"w.signal(syscall.SIGKILL)\n\t\t\t\tw.await()", "w.await()", own("TestWatchStops")},
	{"the guard stops the group when we are gone, and kills nothing", guards,
		"w.signal(syscall.SIGKILL)\n\t\t\t\tw.await()", "w.signal(syscall.SIGSTOP)\n\t\t\t\tw.await()", own("TestWatchDoesNothing")},
	{"a guard that keeps a lock's connection ends before the group does", guards,
		"w.signal(syscall.SIGKILL)\n\t\t\t\tw.await()", "w.signal(syscall.SIGKILL)", own("TestWatchWaitsForTheEnd")},
	{"the guard signals the leader alone", guards, `_ = w.kill(-w.order.Pgid, sig)`, `_ = w.kill(w.order.Pgid, sig)`, own("TestWatchStops")},
	{"the guard kills a group when its clocks part", guards,
		`case why == ErrExpired && expiry == Kill:`, `case expiry == Kill:`, own("TestWatchKills")},
	{"the guard stops a group once, and another process continues it", guards,
		`	wait = StopInterval`, `	wait = time.Hour`, own("TestWatchStops")},
	{"the guard wakes half a second after the end of an allowance", guards,
		`	if why != ErrExpired && expiry != Nothing {`, `	if why == ErrParted && expiry != Nothing {`, own("TestWatchKills")},
	{"the guard looks at its clocks only at the end of an allowance", guards,
		`		wait = ClockInterval`, `		wait = time.Hour`, own("TestWatchStopsWhenClocksPart")},
	{"the guard says again and again that it had stopped the group", guards,
		`w.stopped = w.stopped && !ordered`, `w.stopped = w.stopped && ordered`, own("TestWatchStops")},
	{"the guard doesn't say that the clocks have parted", guards,
		`	if a.Parted && !w.parted && !ordered {`, `	if a.Parted && !w.parted && ordered {`, own("TestWatchStopsWhenClocksPart")},
	{"an allowance holds at the moment of its end", "internal/procgroup/guard/allowance.go",
		`case now.Elapsed >= a.Until:`, `case now.Elapsed > a.Until:`, own("TestWatchKills")},
	{"the guard follows an order for group 1, which is every process", "internal/procgroup/guard/protocol.go",
		`n[0] != magic || o.Pgid <= 1`, `n[0] != magic || o.Pgid < 1`, own("TestWatchRefuses")},
	{"a zombie holds up the guard of its group", "internal/procgroup/guard/system_linux.go",
		`err == nil && !zombie(text)`, `err == nil && text != nil`, own("TestEnded")},
	{"the guard looks for the lock of a process that its parent has yet to wait for", guards,
		`if syscall.Kill(pid, 0) == syscall.ESRCH {`, `if syscall.Kill(pid, 0) != syscall.EPERM {`, own("TestAwaitEnd")},
	{"the guard keeps open what the command has inherited", guards,
		`func CloseInherited(from int) {
`, `func CloseInherited(first int) {
	from := first + 100
`, test("./internal/procgroup", "TestGuardIsAlone")},

	// Its client.
	{"the guard died with the time over, and nothing continues the group after the next look", follows,
		`g.parted || g.answered < g.seq || g.mayRun() != nil`, `g.parted || g.answered < g.seq`, own("TestDue")},
	{"each new guard continues a group that another process has stopped", follows,
		`g.due = g.due || g.parted || g.answered < g.seq || g.mayRun() != nil`, `g.due = true`, own("TestDue")},
	{"the guard's word that it had stopped the group is not heeded", follows,
		`g.due = g.due || a.Stopped`, `g.due = g.due || a.Parted`, own("TestDue")},
	{"a group that was stopped without a guard stays stopped", follows,
		"g.due = true\n\t\t_ = g.signalLocked(unix.SIGSTOP)", "_ = g.signalLocked(unix.SIGSTOP)", own("TestUnguardedIsStopped")},
	{"a group without a guard is stopped whatever its expiry is", follows,
		`	if g.cmd.Expiry != Nothing {`, `	if g.cmd.Expiry != Kill {`, own("TestUnguardedIsStopped")},
	{"a group runs on for five seconds without a guard", follows,
		`alone >= unguardedGrace`, `alone >= 5*unguardedGrace`, own("TestUnguardedIsStopped")},
	{"a group without a guard is stopped once, and another process continues it", follows,
		`now, wait := time.Now(), guard.StopInterval`, `now, wait := time.Now(), time.Hour`, own("TestUnguardedIsStopped")},
	{"each order gives a silent guard more time", follows,
		"if g.answered == g.seq {\n\t\tg.overdue.Reset", "if g.answered <= g.seq {\n\t\tg.overdue.Reset", own("TestSilentGuardIsReplaced")},
	{"the next guard has no order", follows,
		"g.guard = p\n\t_ = g.resendOrder()", "g.guard = p", own("TestUnguardedIsStopped")},
	{"the next guard doesn't keep the connection of the lock", follows,
		`return startGuard(g.backstop.kept, g.cmd.Aftermath, g.kept...)`, `return startGuard(g.backstop.kept, g.cmd.Aftermath)`, own("TestKeptConnection")},
	{"Unpause continues the group before the guard follows its order", follows,
		`g.answered >= want,`, `g.answered+1 >= want,`, own("TestDue")},

	// The backstop.
	{"the backstop kills a group that the guard has killed", shell, `read line || kill`, `read line; kill`, own("TestBackstop")},
	{"the backstop kills the leader alone", shell, `kill -9 -%d`, `kill -9 %d`, own("TestWeAreKilledWithTheGuard")},

	// The start.
	{"a command begins although its guard ends at its start", groupRuns,
		`if err := g.awaitGuard(nil); err == os.ErrProcessDone {`, `if err := error(nil); err == os.ErrProcessDone {`, own("TestDiesAtItsStart")},
	{"a starter that ends at its start is the command", starts,
		"return errStarter\n", "return nil\n", own("TestDiesAtItsStart")},

	// The group.
	{"an answer of the guard continues what the terminal has stopped", groups,
		`	if g.paused || g.stopped {`, `	if g.paused {`, own("TestDue")},
	{"what we refuse to continue never continues", groups,
		`	if err := g.mayRun(); err != nil {
		g.due = true
		return err`, `	if err := g.mayRun(); err != nil {
		return err`, own("TestDue")},
	{"a group that we continued too late runs on", groups,
		"_ = g.signalLocked(unix.SIGSTOP)\n\t\treturn err", "return err", own("TestLooksAtClockAfterContinuing")},
	{"a SIGCONT ends a pause", groups,
		`		g.unsuspendLocked()
		return g.continueLocked()`, `		g.unsuspendLocked()
		g.paused = false
		return g.continueLocked()`, own("TestPause")},
	{"a signal reaches the leader alone", groups, `err := unix.Kill(-g.pgid, sig)`, `err := unix.Kill(g.pgid, sig)`, own("TestPause")},
	{"a SIGINT that we passed on counts as typed", groups, `!g.atTerminal || g.sent[s]`, `!g.atTerminal`, own("TestTerminals")},
	{"the command outlives us while its guard is stopped", groupRuns,
		"\tdieWithThread(attr.Sys)\n", "", own("TestThreadsComeAndGo")},
	{"the command inherits our signal mask", groupRuns,
		"\tdefer emptySignalMask()()\n", "", own("TestSignalState")},
	{"the guard of a command that isn't started lives on", groupRuns,
		"if guard != nil {\n\t\tguard.end()\n\t}\n\tleaveOrphans()", "leaveOrphans()", own("TestNoLeaks")},
	{"a lock's connection lives as long as we do", groupRuns,
		"_ = unix.Close(int(fd))\n", "_ = fd\n", own("TestNoLeaks")},
	{"a command that has ended keeps the terminal", groupRuns,
		`		g.atTerminal = g.tty.foreground() == g.pgid
		g.tty.takeBack(g.pgid)`, `		g.atTerminal = g.tty.foreground() == g.pgid`, own("TestTerminals")},
	{"a command that was killed leaves its terminal modes", groupRuns,
		`	if g.status.Signal != 0 {`, `	if g.status.Signal == 0 {`, own("TestTerminals")},
	{"the lock is resumed after fg, and the group continues although it may not", jobs,
		`ok := g.cmd.BeforeContinue == nil || g.cmd.BeforeContinue(g)`, `ok := g.cmd.BeforeContinue == nil || g.cmd.BeforeContinue(g) || true`, own("TestDue")},
	{"Ctrl-Z stops us and not the command", jobs,
		"\t_ = g.signalLocked(unix.SIGTSTP)\n", "", own("TestTerminals")},
	{"a process that can't be killed is never reported", runsOn,
		`>= stopTime || r.denied(pid)`, `>= stopTime && r.denied(pid)`, own("TestReminders")},
	{"a process that survives a kill is reported as late as one that survived the stop before", runsOn,
		`	if r.killed != killed {`, `	if r.killed {`, own("TestReminders")},
	{"a process that runs in a paused group is not reported", runsOn,
		`return g.killed || g.paused ||`, `return g.killed ||`, own("TestRunsOn")},
	{"a group has ended whose last process has just started another", sweeps,
		`	if ok && n == 0 {`, `	if ok && n < 0 {`, own("TestSweepLooksTwice")},
	{"orphans stay zombies", sweeps, `if group != unix.Getpgrp() {`, `if group == unix.Getpgrp() {`, own("TestReapsOrphans")},
	{"a zombie of another parent keeps its group alive", sweeps,
		`ok && !p.Ended {`, `ok && p.State != "" {`, own("TestMemberOfAnotherParent")},
	{"a process in a disk wait counts as one that runs on", "internal/procgroup/awake_linux.go",
		"return denied(pid)\n", "return true\n", own("TestActive")},
	{"the starter takes half a message for the whole", "internal/procgroup/starter/starter.go",
		`if len(all) != total || nargs >= total {`, `if nargs >= total || len(all) == 0 {`, test("./internal/procgroup", "TestMessage")},
	{"the command inherits the gate of its starter", "internal/procgroup/starter/starter.go",
		"\tsyscall.CloseOnExec(gate)\n", "", test("./internal/procgroup", "TestGuardIsAlone")},

	// The judge of torture.
	{"torture misses an object that vanished beside a prune", "internal/torture/work.go",
		`if must && strings.HasPrefix(key, prefix) {`, `if must && strings.HasPrefix(key, c.own) {`, own("TestWork")},
	{"torture misses a backup that wrote beside a prune", "internal/torture/work.go",
		"prefix = c.Data\n", "prefix = c.own\n", own("TestWork")},
	{"torture takes a run in which no client got the lock for one without violations", "internal/torture/run.go",
		`	if err == nil && r.counts.Acquisitions() == 0 {`, `	if err == nil && r.counts.Acquisitions() < 0 {`, own("TestUnjudged")},
	{"torture takes a run without a verdict for one without violations", "internal/torture/contest.go",
		`if failed != nil && v.Result == judge.NotFound {`, `if failed != nil && v.Result == judge.Unknown {`, own("TestUnjudged")},
	{"torture judges a child that has crashed", "internal/torture/run.go",
		`if code == fault.ExitUnjudged || code == panicked {`, `if code == fault.ExitUnjudged {`, own("TestUnjudged")},
	{"torture forgets a lock that was never freed", "internal/torture/contest.go",
		`append(v.Violations, k.extra...)`, `append(v.Violations, k.extra[:0]...)`, own("TestTrialFinds")},
	{"torture judges the sections of a round each for itself", "internal/torture/trial_linux.go",
		`found, _ = judge.Seen(sections)`, `found, _ = judge.Seen(sections[:min(1, len(sections))])`, own("TestTrialFinds")},
	{"torture trusts the clock of a container", "internal/torture/contender_linux.go",
		`	if e.Text != namespaces() {`, `	if e.Text == "" {`, own("TestTrialElsewhere")},
	{"torture understands half of a line", "internal/torture/contest.go", `	case d.More():`, `	case false:`, own("TestParse")},
}
