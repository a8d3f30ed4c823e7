package main

const (
	guards    = "internal/procgroup/guard/guard.go"
	page      = "internal/procgroup/guard/page.go"
	follows   = "internal/procgroup/guard_client.go"
	groups    = "internal/procgroup/group.go"
	groupRuns = "internal/procgroup/group_run.go"
	jobs      = "internal/procgroup/jobcontrol.go"
	runsOn    = "internal/procgroup/runaways.go"
	sweeps    = "internal/procgroup/sweep_linux.go"
	shell     = "internal/procgroup/backstop.go"
	starts    = "internal/procgroup/starter.go"
	alarms    = "internal/clock/alarm_linux.go"
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
	{"the guard signals the leader alone", guards,
		`_ = w.kill(-pgid, sig)`, `_ = w.kill(pgid, sig)`, own("TestWatchStops")},
	{"the guard kills a group when its clocks part", guards,
		`case why == ErrExpired && expiry == Kill:`, `case expiry == Kill:`, own("TestWatchKills")},
	{"the guard stops a group once, and another process continues it", guards,
		` || now-h.stopped >= StopInterval`, ``, own("TestWatchStops")},
	{"what another process continues runs on until the next stop", guards,
		`	if due || continued {`, `	if due {`, own("TestWatchContinued")},
	{"the guard looks at a stopped group five times a second", guards,
		`	return HoldInterval, stopped
`, `	return StopInterval, stopped
`, own("TestWatchContinued")},
	{"a group that was just continued is looked at as seldom as any other", guards,
		`	if now < h.alarm {`, `	if now < 0 {`, own("TestWatchContinued")},
	{"a group can be continued for ever", guards,
		`	if w.page.Continued() > MostContinued {`, `	if w.page.Continued() < 0 {`, own("TestWatchContinued")},
	{"a group is killed when it is continued once", guards,
		`	if w.page.Continued() > MostContinued {`, `	if w.page.Continued() > 0 {`, own("TestWatchContinued")},
	{"the continuations before the group went on count later", guards,
		`		w.page.continued.Store(0)
`, ``, own("TestWatchContinued")},
	{"our own SIGCONT counts as another process's", guards,
		`	if continued && h.sigconts == sigconts {`, `	if continued {`, own("TestWatchContinued")},
	{"the guard doesn't say that another process has continued the group", guards,
		`		w.reported = version - 1
`, ``, own("TestWatchContinued")},
	{"the guard doesn't hold a group that is paused", guards,
		`	case why == nil && !paused:`, `	case why == nil:`, own("TestWatchContinued")},
	{"the guard doesn't hold a paused group whose allowance ends in nothing", guards,
		`expiry == Nothing && !paused:`, `expiry == Nothing:`, own("TestWatchContinued")},
	{"a limit above the own control group is ignored", "internal/procgroup/room_linux.go", "strings.HasPrefix(dir, top); dir = filepath.Dir(dir) {", "strings.HasPrefix(dir, top); dir = \"\" {", own("TestCrowded")},
	{"a control group of another controller limits processes", "internal/procgroup/room_linux.go", `words[1] != "" && !slices.Contains(strings.Split(words[1], ","), "pids")`, `words[1] != "" && !slices.Contains(strings.Split(words[1], ","), words[1])`, own("TestCrowded")},
	{"a control group that is nearly full has room", "internal/procgroup/room_linux.go", "most < used+leastTasks {\n\t\t\t\treturn", "most < used {\n\t\t\t\treturn", own("TestCrowded")},
	{"a stop that is pending counts as one that another process has ended", "internal/procgroup/guard/system_linux.go",
		`pending(status)&(1<<(syscall.SIGSTOP-1)|1<<(syscall.SIGKILL-1)) != 0`, `pending(status) == 1<<63`, own("TestGoesOn")},
	{"a process of which one thread is stopped already goes on", "internal/procgroup/guard/system_linux.go",
		`		case "T", "t":
			return false
`, `		case "T", "t":
`, own("TestGoesOn")},
	{"the guard finds no process that was continued", "internal/procgroup/guard/system_linux.go",
		`Continued(pgid, except int, anew bool) bool {`, `Continued(_, except int, anew bool) bool {
	const pgid = -1`, test("./internal/procgroup", "TestContinuedBesideUs")},
	{"the guard wakes half a second after the end of an allowance", guards,
		`return min(LookInterval, left), false`, `return LookInterval, false`, own("TestWatchKills")},
	{"the guard looks at the page only at the end of an allowance, as if it were stopped", guards,
		`LookInterval = 5 * time.Second`, `LookInterval = time.Hour`, own("TestWatchLooks")},
	{"the guard says again and again that it has stopped the group", guards,
		`if stopped && (version != w.reported || w.page.Version() != version) {`, `if stopped {`, own("TestWatchStops")},
	{"the guard doesn't say that it has stopped the group", guards,
		`if stopped && (version != w.reported || w.page.Version() != version) {`, `if stopped && version == 0 {`, own("TestWatchStopsWhenClocksPart")},
	{"the guard kills a group for the end of an allowance that was extended before", guards,
		`			continue // it was replaced, perhaps before its end
`, ``, own("TestWatchTooLate")},
	{"the guard doesn't say that it has stopped a group that was continued meanwhile", guards,
		`if stopped && (version != w.reported || w.page.Version() != version) {`, `if stopped && version != w.reported {`, own("TestWatchTooLate")},
	{"the guard follows an earlier allowance than the last", guards,
		`			continue
`, ``, own("TestWatchTooLate")},
	{"an allowance holds at the moment of its end", "internal/procgroup/guard/allowance.go",
		`case now.Elapsed >= a.Until:`, `case now.Elapsed > a.Until:`, own("TestWatchKills")},
	{"the guard follows an allowance for group 1, which is every process", guards,
		`pgid > 1 && w.page.Version() > 0`, `pgid > 0 && w.page.Version() > 0`, own("TestWatchRefuses")},
	{"the guard kills a group that never had an allowance", guards,
		`pgid > 1 && w.page.Version() > 0`, `pgid > 1`, own("TestWatchRefuses")},
	{"an allowance counts before it is complete", page,
		`	for i, d := range`, `	p.version.Store(v)
	for i, d := range`, own("TestPage")},
	{"an allowance is written over the one that counts", page,
		`		p.slots[v%2][i].Store`, `		p.slots[0][i].Store`, own("TestPage")},
	{"a guard that was killed while it stopped the group hasn't stopped it", page,
		`p.stopsDone.Store(p.stopsBegun.Load())`, `p.stopsDone.Store(p.stopsDone.Load())`, own("TestPage")},
	{"the guard counts a stop as over before its signal", page,
		"\tstop()\n\tp.stopsDone.Add(1)\n", "\tp.stopsDone.Add(1)\n\tstop()\n", own("TestPage")},
	{"a zombie holds up the guard of its group", "internal/procgroup/guard/system_linux.go",
		`err == nil && !zombie(text)`, `err == nil && text != nil`, own("TestEnded")},
	{"the guard looks for the lock of a process that its parent has yet to wait for", guards,
		`if syscall.Kill(pid, 0) == syscall.ESRCH {`, `if syscall.Kill(pid, 0) != syscall.EPERM {`, own("TestAwaitEnd")},
	{"the guard starts threads when it needs them", "internal/procgroup/guard/threads.go",
		"func ReserveThreads(n int) {", "func ReserveThreads(int) {\n\tconst n = 0", test("./internal/procgroup", "TestGuardStartsNoThread")},
	{"the guard keeps open what the command has inherited", guards,
		"CloseInherited(from int) {", "CloseInherited(first int) {\n\tfrom := first + 100", test("./internal/procgroup", "TestGuardIsAlone")},

	// Its client.
	{"each new guard continues a group that another process has stopped", follows,
		`	g.page.GuardDied()
`, `	g.due = true
`, own("TestDue")},
	{"what a guard had stopped that died in the stop stays stopped", follows,
		`	g.page.GuardDied()
`, ``, own("TestDue")},
	{"the guard's stops are not heeded", follows,
		`return g.due || g.page.Stops() != g.stopsContinued`, `return g.due`, own("TestDue")},
	{"a stop that isn't over counts as continued", page,
		`return p.stopsDone.Load()`, `return p.stopsBegun.Load()`, test("./internal/procgroup", "TestDue")},
	{"the group continues although the guard doesn't follow its allowance", follows,
		`	if g.page.FollowsCurrent() {
		guarded`, `	if true {
		guarded`, own("TestDue")},
	{"a new allowance doesn't continue what the guard has stopped", groups,
		`	if g.isDue() {
		g.ring()`, `	if g.isDue() && g.over {
		g.ring()`, own("TestUnpauseTooLate")},
	{"a group that was stopped without a guard stays stopped", follows,
		`		g.due = true
		g.stopContinued(`, `		g.stopContinued(`, own("TestUnguardedIsStopped")},
	{"a group without a guard is stopped whatever its expiry is", follows,
		`	if g.cmd.Expiry != Nothing {`, `	if g.cmd.Expiry != Kill {`, own("TestUnguardedIsStopped")},
	{"a group runs on for five seconds without a guard", follows,
		`now.Sub(r.since) >= unguardedGrace`, `now.Sub(r.since) >= 5*unguardedGrace`, own("TestUnguardedIsStopped")},
	{"a group without a guard is stopped once, and another process continues it", follows,
		`now.Sub(r.since) >= unguardedGrace`, `now.Sub(r.since) >= unguardedGrace && g.unguarded == nil`, own("TestUnguardedIsStopped")},
	{"each allowance gives a silent guard more time", follows,
		`	if g.page.Follows(g.awaited) {`, `	if g.awaited >= 0 {`, own("TestSilentGuardIsReplaced")},
	{"a guard that has followed one allowance needn't follow another", follows,
		`	if g.page.Follows(g.awaited) {`, `	if g.awaited == 0 {`, own("TestSilentGuardIsReplaced")},
	{"the next guard isn't asked for an answer", follows,
		`	g.allowLocked()
	g.ring()
}`, `	g.allowLocked()
}`, own("TestUnguardedIsStopped")},
	{"the next guard doesn't keep the connection of the lock", follows,
		`g.pageFile.Fd()}, g.kept...)`, `g.pageFile.Fd()})`, own("TestKeptConnection")},
	{"Unpause continues the group before the guard follows the allowance", follows,
		`g.page.Follows(want),`, `g.page.Follows(want-1),`, own("TestDue")},

	{"the page lies open in the temporary directory", "internal/procgroup/page.go",
		`		_ = os.Remove(g.pageFile.Name())
`, ``, own("TestNoPage")},
	{"a page is mapped although the disk has no room for it", "internal/procgroup/page.go",
		`err == nil {
		g.page`, `err == nil || true {
		g.page`, own("TestNoPage")},

	// The backstop.
	{"the backstop kills a group that the guard has killed", shell, `read line || kill`, `read line; kill`, own("TestBackstop")},
	{"the backstop kills the leader alone", shell, `kill -9 -%d`, `kill -9 %d`, own("TestWeAreKilledWithTheGuard")},

	// The start.
	{"a command begins although its guard ends at its start", groupRuns,
		`if err := g.awaitAnswer(nil); err == os.ErrProcessDone {`, `if err := error(nil); err == os.ErrProcessDone {`, own("TestDiesAtItsStart")},
	{"a command whose guard answers late doesn't start", groupRuns,
		`if _, err := g.extend(b.allow); err != nil {`, `if _, err := g.extend(b.allow); err != nil || late != nil {`, own("TestSlowStart")},
	{"a command whose starter is slow doesn't start", "internal/procgroup/prepare.go",
		`a, err := p.g.extend(allow)`, `a, err := p.g.allowance, check(p.g.allowance, p.g.cmd.Expiry, p.g.clocks())`, own("TestSlowStart")},
	{"a starter that ends at its start is the command", starts,
		"return errStarter\n", "return nil\n", own("TestDiesAtItsStart")},

	// A group that another process continues.
	{"we ignore that the leader was continued", "internal/procgroup/continued.go",
		`	if !g.killed && g.mustNotRun() {`, `	if g.killed && g.mustNotRun() {`, own("TestLeaderContinued")},
	{"the leader can be continued for ever", "internal/procgroup/continued.go",
		`	if g.others.seen > guard.MostContinued {`, `	if g.others.seen < 0 {`, own("TestLeaderContinued")},
	{"our own SIGCONT to the leader counts", "internal/procgroup/continued.go",
		`g.stopContinued(!own)`, `g.stopContinued(own || !own)`, own("TestLeaderContinued")},
	{"the guard doesn't hear of a pause", groups, `	g.page.Pause(true)
`, ``, own("TestContinuedBesideUs")},
	{"a group that goes on stays paused for the guard", groups, `	g.page.Pause(false)
`, ``, own("TestContinuedSeldom")},
	{"we don't note our own SIGCONT for the guard", groups, `	g.page.Continue()
`, ``, own("TestLeaderContinued")},
	{"the continuations of an earlier pause count", groups, `	g.due, g.others.seen, g.others.reported = false, 0, 0
`, `	g.due = false
`, own("TestLeaderContinued")},
	{"without a guard nothing looks whether another process continues the group", follows,
		`g.stopContinued(!began && g.members.Continued(g.pgid, 0, anew))`, `g.stopContinued(false)`, own("TestContinuedUnguarded")},
	{"a kill by the guard goes unsaid if the group ends first", groupRuns,
		`continued := g.reportContinued()`, `continued := func() {}`, own("TestKilledByTheGuard")},

	// The group.
	{"an answer of the guard continues what the terminal has stopped", groups,
		`	if g.paused || g.stopped {`, `	if g.paused {`, own("TestDue")},
	{"what we refuse to continue never continues", groups,
		"g.due = true\n\t\treturn err", "return err", own("TestDue")},
	{"a group that we continued too late runs on", groups,
		"_ = g.signalLocked(unix.SIGSTOP)\n\t\treturn err", "return err", own("TestLooksAtClockAfterContinuing")},
	{"a SIGCONT ends a pause", groups,
		"unsuspendLocked()\n\t\treturn g.cont", "unsuspendLocked()\n\t\tg.paused = false\n\t\treturn g.cont", own("TestPause")},
	{"a signal reaches the leader alone", groups, `err := unix.Kill(-g.pgid, sig)`, `err := unix.Kill(g.pgid, sig)`, own("TestPause")},
	{"a SIGINT that we passed on counts as typed", groups, `!g.atTerminal || g.sent[s]`, `!g.atTerminal`, own("TestTerminals")},
	{"the command outlives us while its guard is stopped", groupRuns,
		"\tdieWithThread(attr.Sys)\n", "", own("TestThreadsComeAndGo")},
	{"the command inherits our signal mask", groupRuns,
		"\tdefer emptySignalMask()()\n", "", own("TestSignalState")},
	{"the guard of a command that isn't started lives on", groupRuns,
		"if guard != nil {\n\t\tguard.end()\n\t}\n\tg.pageFile", "g.pageFile", own("TestNoLeaks")},
	{"a lock's connection lives as long as we do", groupRuns,
		"_ = unix.Close(int(fd))\n", "_ = fd\n", own("TestNoLeaks")},
	{"a command that has ended keeps the terminal", groupRuns,
		"\n\t\tg.tty.takeBack(g.pgid)", "", own("TestTerminals")},
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
	{"orphans stay zombies", sweeps, `err != nil || group == unix.Getpgrp() ||`, `err != nil || group != unix.Getpgrp() ||`, own("TestReapsOrphans")},
	{"a child that has left the group hides its own children", sweeps, "sure = false", "sure = true", own("TestSweepAsksForChildren")},
	{"lists of children count although they change", sweeps, "if slices.Equal(last, next) {", "if slices.Equal(last, next) || len(next) > 0 {", own("TestListsThatChange")},
	{"our children count although we adopt no orphans", sweeps, "err != nil || adopts == 0", "err != nil", own("TestSweepLooksTwice")},
	{"a zombie of another parent keeps its group alive", sweeps,
		`ok && !p.Ended {`, `ok && p.State != "" {`, own("TestMemberOfAnotherParent")},
	{"a process in a disk wait counts as one that runs on", "internal/procgroup/running_linux.go",
		"return denied(pid)\n", "return true\n", own("TestActive")},
	{"the starter takes half a message for the whole", "internal/procgroup/starter/starter.go",
		`if len(all) != total || nargs >= total {`, `if nargs >= total || len(all) == 0 {`, test("./internal/procgroup", "TestMessage")},
	{"the command inherits the gate of its starter", "internal/procgroup/starter/starter.go",
		"\tsyscall.CloseOnExec(gate)\n", "", test("./internal/procgroup", "TestGuardIsAlone")},

	// A group that would be orphaned.
	{"nothing prevents that the kernel continues a stopped group when we are killed", "internal/procgroup/guard/anchor_linux.go",
		`hold(pgid int) int {`, `hold(int) int {
	const pgid = 1 << 22`, test("./internal/procgroup", "TestKilledWhilePaused")},
	{"the guard has a session of its own", follows,
		`return &syscall.SysProcAttr{Setpgid: true} }`, `return &syscall.SysProcAttr{Setsid: true} }`, own("TestKilledWhilePaused")},
	{"the anchor keeps an empty group alive", sweeps, ` || pid == anchor {`, ` {`, own("TestAnchorKeepsNothingAlive")},

	// The second of two, and the time to give up.
	{"the search for a guard goes on where the search before ended", follows,
		`			r = replacement{}
`, ``, own("TestSecondGuardIsLost")},
	{"the next guard is tried at once again and again", follows, `min(2*r.pause, lastPause)`, `min(r.pause, lastPause)`, own("TestSecondGuardIsLost")},
	{"the next guard is tried ever more seldom", follows, `min(2*r.pause, lastPause)`, `2*r.pause`, own("TestSecondGuardIsLost")},
	{"the next guard is tried ten times as late", follows, `firstPause = 50 * time.Millisecond`, `firstPause = 500 * time.Millisecond`, own("TestSecondGuardIsLost")},
	{"a guard that is starting before the command has the time of one that runs", follows, "!g.begun || g.unguarded != nil", "g.unguarded != nil", own("TestSilentGuardIsReplaced")},
	{"a guard that replaces another has the time of one that runs", follows, "!g.begun || g.unguarded != nil", "!g.begun", own("TestSilentGuardIsReplaced")},
	{"a silent guard has ten times as long", follows, `answerTimeout = 10 * time.Second`, `answerTimeout = 100 * time.Second`, own("TestGivesUpOnASilentGuard")},
	{"a process may take ten times as long to stop", runsOn, `stopTime = 2 * time.Second`, `stopTime = 20 * time.Second`, own("TestReminders")},
	{"a wait without alarms polls ten times as seldom", "internal/clock/clock.go", `Tick = 500 * time.Millisecond`, `Tick = 5 * time.Second`, own("TestSleep")},

	// The kernel's clocks and timers.
	{"the clock since boot doesn't count suspend", "internal/clock/elapsed_linux.go",
		`syscall.SYS_CLOCK_GETTIME, boottime`, `syscall.SYS_CLOCK_GETTIME, 1`, own("TestElapsedIsSinceBoot")},
	{"a timer doesn't count suspend", alarms, `newTimer(boottime)`, `newTimer(1)`, own("TestAlarmsTimers")},
	{"a timer wakes the machine from a suspend", alarms, `newTimer(boottime)`, `newTimer(9)`, own("TestAlarmsTimers")},
	{"the time of a wake-up is taken for one since boot", alarms, `setTimer(a.fd, 0,`, `setTimer(a.fd, absolute,`, own("TestAlarmsTimers")},
	{"the kernel doesn't report that the wall clock was set", alarms, `absolute|cancelOnSet, never`, `absolute, never`, own("TestAlarmsTimers")},
	{"a timer that no clock cancels", alarms, `newTimer(realtime)`, `newTimer(boottime)`, own("TestAlarmsTimers")},
	{"a timer that was cancelled once is read no more", alarms,
		`err != nil && !errors.Is(err, syscall.ECANCELED)`, `err != nil`, own("TestAlarmIsCancelled")},
	{"a timer that is due is disarmed", alarms, `int64(max(d, 1))`, `int64(max(d, 0))`, own("TestAlarmComesAtOnce")},
	{"the command inherits the timers", alarms, `syscall.O_NONBLOCK|syscall.O_CLOEXEC`, `syscall.O_NONBLOCK`, own("TestAlarmIsOurs")},
	{"the guard compares its clocks with the present, not with the last look at the lock", "cmd/internal/session/guard.go", "	a.Seen = s.lock.Seen()\n", "", own("TestAllowance")},
	{"a wait polls although the kernel has alarms", "internal/clock/watch.go",
		`ok && !InBubble(time.Now())`, `ok && InBubble(time.Now())`, own("TestWatchHasAnAlarm")},
	{"the guard polls its clocks", guards,
		`func (w *watcher) watch(pipe io.Reader) {
	rings := make(chan struct{})
	go func() {
		defer close(rings)
		b := make([]byte, 1)
		for n, _ := pipe.Read(b); n > 0; n, _ = pipe.Read(b) {
			rings <- struct{}{}
		}
	}()
	watch := clock.NewWatch(w.clock)`,
		`func (w *watcher) watch(p io.Reader) {
	pipe := p
	rings := make(chan struct{})
	go func() {
		defer close(rings)
		b := make([]byte, 1)
		for n, _ := pipe.Read(b); n > 0; n, _ = pipe.Read(b) {
			rings <- struct{}{}
		}
	}()
	watch := clock.NewWatch(struct{ clock.Clock }{w.clock})`, test("./internal/procgroup", "TestGuardsTimers")},
	{"repolock polls its clocks while the command runs", "internal/clock/watch.go",
		`w.alarm = newAlarm()`, `w.alarm = nil`, test("./cmd/repolock", "TestTimers")},

	// The judge of torture.
	{"the judge misses a critical section within another", "internal/judge/verdict.go",
		`s.Last > o.In {`, `s.Last > o.Last {`, own("TestOverlaps")},
	{"torture misses an object that vanished beside a prune", "internal/torture/work.go",
		`if must && strings.HasPrefix(key, prefix) {`, `if must && strings.HasPrefix(key, c.own) {`, own("TestWork")},
	{"torture misses a backup that wrote beside a prune", "internal/torture/work.go",
		"prefix = c.Data\n", "prefix = c.own\n", own("TestWork")},
	{"torture takes a run in which no client got the lock for one without violations", "internal/torture/run.go",
		`case c.Acquisitions() == 0:`, `case c.Acquisitions() < 0:`, own("TestUnjudged")},
	{"no client of torture waits, so a crowd of shared holders keeps out each exclusive one", "internal/torture/plan.go",
		`if r.Float64() < c.Wait {`, `if r.Float64() < c.Wait-1 {`, own("TestPlan")},
	{"all clients of torture can wait, so none is refused", "internal/torture/run.go",
		`if r.waiting*waiterOf >= len(r.opts.Clients) {`, `if r.waiting >= len(r.opts.Clients) {`, own("TestWaiters")},
	{"a client of torture that is to wait doesn't", "internal/torture/plan.go",
		`if w.Wait > 0 {`, `if w.Wait < 0 {`, own("TestCommand")},
	{"a fault for the child of a waiter comes while it waits", "internal/torture/run.go",
		`if p.fault != none && p.inChild {`, `if p.fault == none && p.inChild {`, own("TestFaultOfAWaiter")},
	{"torture judges a run without an exclusive lock", "internal/torture/run.go",
		`case c.Exclusive == 0:`, `case c.Exclusive < 0:`, own("TestTooFew")},
	{"torture judges a run without a shared lock", "internal/torture/run.go",
		`case c.Shared == 0:`, `case c.Shared < 0:`, own("TestTooFew")},
	{"torture judges a run in which hardly any attempt met another holder", "internal/torture/run.go",
		`case c.Conflicts < r.opts.Conflicts:`, `case c.Conflicts < 0:`, own("TestTooFew")},
	{"repolock torture judges a run in which hardly any attempt met another holder", "cmd/repolock/torture.go",
		`Conflicts: fewest,`, `Conflicts: 0,`, own("TestScripts/torture")},
	{"a violation's log is deleted if too little happened", "cmd/repolock/torture.go", "unknown || len(t.Violations) > 0", "unknown", own("TestKeptLogs")},
	{"torture counts attempts beside holders that don't exclude them as conflicts", "internal/judge/verdict.go",
		`if mode.conflicts(h.Mode) {`, `if mode.conflicts(h.Mode) || h.Mode == Shared {`, own("TestConflicts")},
	{"torture counts attempts that came after each holder as conflicts", "internal/judge/verdict.go",
		`if longest[s.Mode][before] > s.Started {`, `if longest[s.Mode][before] > 0 {`, own("TestConflicts")},
	{"torture takes a run without a verdict for one without violations", "internal/torture/run.go",
		`if failed != nil && v.Result == judge.NotFound {`, `if failed != nil && v.Result == judge.Unknown {`, own("TestUnjudged")},
	{"torture judges a child that has crashed", "internal/torture/run.go",
		`if code == fault.ExitUnjudged || code == panicked {`, `if code == fault.ExitUnjudged {`, own("TestUnjudged")},
	{"a trial without a verdict counts as one without violations", "e2e/peers/judge/run.go",
		`if failed != nil && v.Result == judge.NotFound {`, `if failed != nil && v.Result == judge.Unknown {`, own("TestTrialUnjudged")},
	{"a trial forgets a lock that was never freed", "e2e/peers/judge/run.go",
		`append(v.Violations, t.neverFreed...)`, `append(v.Violations, t.neverFreed[:0]...)`, own("TestTrialFinds")},
	{"a trial judges the sections of a round each for itself", "e2e/peers/judge/run.go",
		`judge.Judge(sections).Violations`, `judge.Judge(sections[:min(1, len(sections))]).Violations`, own("TestTrialFinds")},
	{"a trial trusts the clock of a container", "e2e/peers/judge/contender.go",
		`	if e.Text != namespaces() {`, `	if e.Text == "" {`, own("TestTrialElsewhere")},
	{"torture understands half of a line", "internal/judge/log.go", `	case d.More():`, `	case false:`, own("TestParse")},
}
