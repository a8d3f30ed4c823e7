package main

const (
	supervises = "cmd/internal/session/run.go"
	afterLoss  = "cmd/internal/session/loss.go"
	guarded    = "cmd/internal/session/guard.go"
)

// e2eMutants are bugs that only real processes find: of what a session does with its command.
var e2eMutants = []mutant{
	{"a signal that ends a command doesn't end the acquire", supervises,
		"[]os.Signal{os.Interrupt, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}", "[]os.Signal{os.Interrupt, syscall.SIGHUP, syscall.SIGQUIT}", own("TestNotAcquired")},
	{"a slow start under an outer lock gets no second allowance", supervises,
		"func() procgroup.Allowance { return s.allowance(2 * breath) }",
		"func(a procgroup.Allowance) func() procgroup.Allowance { return func() procgroup.Allowance { return a } }(s.allowance(2 * breath))", own("TestSlowStart")},
	{"Ctrl-C doesn't end a resume whose store hangs", afterLoss, "		cancel()\n		<-resumed\n", "		<-resumed\n", own("TestGivesUp")},
	{"a resume has ten times its time", afterLoss, "context.WithTimeout(context.Background(), s.ResumeFor)", "context.WithTimeout(context.Background(), 10*s.ResumeFor)", own("TestGivesUp")},
	{"it isn't said that another process continues the command", supervises,
		"		Continued:   s.continuedByOther,\n", "", own("TestContinuedWhileResuming")},
	{"a command that is killed for its lock gives its own exit code", supervises,
		"code, err := s.result(group.Status())", "code, err := group.Status().ExitCode(), error(nil)", test("./e2e", "TestOnDirectory/broken_backup")},
	{"a command is killed although --on-lost says pause", afterLoss,
		`case s.OnLost == "pause" && !loss.Definite && s.pause():`, `case s.OnLost == "kill" && !loss.Definite && s.pause():`, test("./e2e", "TestOnDirectory/long_outage_of_a_backup")},
	{"the guard isn't told that the lock was resumed", afterLoss,
		"s.group.Allow(s.allowed)\n\terr := s.group.Unpause()", "err := s.group.Unpause()", test("./e2e", "TestOnDirectory/stopped_alone")},
	{"the guard lets a command run on after the lease", guarded,
		`"pause": procgroup.Stop,`, `"pause": procgroup.Nothing,`, test("./e2e", "TestOnDirectory/stopped")},
	{"the guard isn't told that the lock was refreshed", guarded,
		"if a := s.allowance(breath); a != s.allowed {", "if a := s.allowance(breath); s.allowed == (procgroup.Allowance{}) {", test("./e2e", "TestOnDirectory/held_on")},
}
