//go:build linux

package procgroup

import (
	"bufio"
	"flag"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/procstat"
)

func init() {
	programs["parent"] = parentMain
	programs["tick"] = tickMain
	programs["blocked"] = blockedMain
	programs["outside"] = outsideMain
	programs["foreground"] = foregroundMain
	programs["trivial"] = trivialMain
	programs["terminal"] = func([]string) { fmt.Println(Foreground()) }
}

// parentMain runs a command in a group as its arguments say. It writes what
// happens to -events, and obeys lines of its standard input unless -inherit gives
// the standard streams to the command.
func parentMain(args []string) {
	f := flag.NewFlagSet("parent", flag.ExitOnError)
	until := f.Duration("until", time.Minute, "")
	expiry := f.String("expiry", "stop", "")
	inherit := f.Bool("inherit", false, "")
	events := f.String("events", "", "default: the standard output")
	deny := f.Bool("deny", false, "BeforeContinue says no")
	extend := f.Duration("extend", 0, "BeforeContinue allows this much")
	churn := f.Duration("churn", 0, "kill threads for this long")
	quick := f.Duration("patience", 0, "")
	late := f.String("badguard", "", "now or later")
	usr := f.Bool("usr", false, "SIGUSR1 pauses, SIGUSR2 unpauses")
	stepped := f.String("stepped", "", "the file of stepClock")
	keep := f.String("keep", "", "the socket of a connection that the guard keeps")
	halt := f.Bool("halt", false, "stop ourselves while we start the command")
	if err := f.Parse(args); err != nil {
		panic(err)
	}

	if *stepped != "" {
		os.Args[0] = steppedBy + *stepped
		stepClock(*stepped)
	}

	out := eventsFile(*events)
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	if *quick > 0 {
		answerTimeout = *quick
	}
	if *halt {
		beforeBegin = func() {
			say("forked")
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			time.Sleep(100 * time.Millisecond) // the signal can be delivered a moment later
		}
	}
	if *inherit {
		beforeBegin = func() { say("prepared, foreground: %t", openTerminal().ours()) }
	}
	if exe := os.Args[0]; *late == "copy" { // there is no /proc
		guardProgram = func() string { return exe }
	}
	good := guardProgram
	if *late == "now" {
		guardProgram = func() string { return "/nonexistent" }
	}

	cmd := Command{
		Args:   f.Args(),
		Expiry: map[string]Expiry{"stop": Stop, "kill": Kill, "nothing": Nothing}[*expiry],
		BeforeContinue: func(g *Group) bool {
			say("asked")
			if *extend > 0 {
				g.Allow(Allow(clock.System{}.Elapsed() + *extend))
			}
			return !*deny
		},
		RunsOn:      func(pids []int, killed bool) { say("runs on %d %t", pids, killed) },
		Waiting:     func(n int) { say("waiting %d", n) },
		Trouble:     func(err error) { say("trouble %v", err) },
		Interrupted: func(why error, over bool) { say("interrupted %v %t", why, over) },
	}
	if *inherit {
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	} else {
		cmd.Stdout = os.Stdout
	}
	signals, stop := Signals()
	defer stop()
	var kept []syscall.Conn
	if *keep != "" {
		c, err := net.Dial("unix", *keep)
		if err != nil {
			panic(err)
		}
		kept = append(kept, c.(syscall.Conn))
	}
	g, err := begin(cmd, *until, kept...)
	if err != nil {
		say("failed %v", err)
		os.Exit(127)
	}
	if *late == "later" {
		guardProgram = func() string { return "/nonexistent" }
	}
	if *late == "dies" {
		guardProgram = func() string { return "/bin/true" }
	}
	if *late == "" {
		awaitGuard(g)
	}
	say("started %d %d %d", g.pgid, guardPid(g), g.allowance.Until)

	go func() {
		for sig := range signals {
			switch {
			case *usr && sig == unix.SIGUSR1:
				say("pause: %v", g.Pause())
			case *usr && sig == unix.SIGUSR2:
				say("unpause: %v", g.Unpause())
			default:
				_ = g.Signal(sig)
			}
		}
	}()
	if *churn > 0 {
		churnThreads(*churn)
		say("churned")
	}
	if !*inherit {
		go obey(g, say, func() {
			g.mu.Lock()
			defer g.mu.Unlock()
			guardProgram = good
		})
	}
	<-g.Done()
	if err := g.Close(); err != nil {
		say("close: %v", err)
	}
	say("typed %d", g.Typed())
	say("done %v", g.Status())
	os.Exit(g.Status().ExitCode())
}

// eventsFile opens the file of -events, or returns the standard output.
func eventsFile(name string) *os.File {
	if name == "" {
		return os.Stdout
	}
	out, err := os.OpenFile(name, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	return out
}

// churnThreads ends threads of this process, and so makes the runtime start others.
func churnThreads(d time.Duration) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for range 8 {
			go func() { runtime.LockOSThread() }() // a locked goroutine's end ends its thread
		}
	}
}

func obey(g *Group, say func(string, ...any), mend func()) {
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		word, arg, _ := strings.Cut(s.Text(), " ")
		var err error
		switch word {
		case "allow":
			d, _ := time.ParseDuration(arg)
			g.Allow(Allow(clock.System{}.Elapsed() + d))
		case "pause":
			err = g.Pause()
		case "unpause":
			err = g.Unpause()
		case "mend": // guards can be started again
			mend()
		case "refused": // the clocks part for this process only
			g.mu.Lock()
			real := g.allowance
			g.allowance.Seen.Wall += time.Hour
			g.paused = false
			err = g.continueLocked()
			g.allowance = real
			g.mu.Unlock()
		case "kill": // this process can end before it could report the result
			if err := g.Kill(); err != nil {
				say("kill: %v", err)
			}
			continue
		case "signal":
			n, _ := strconv.Atoi(arg)
			err = g.Signal(syscall.Signal(n))
		case "guard":
			say("guard %d", guardPid(g))
			continue
		case "zombies":
			say("zombies %d", zombies())
			continue
		}
		say("%s: %v", word, err)
	}
}

// guardPid is the guard's process, or 0 if there is none.
func guardPid(g *Group) int {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.guard == nil {
		return 0
	}
	return g.guard.pid
}

// awaitGuard returns when there is a guard, which on a busy machine can be the second, or when the
// command has ended, and its guard with it.
func awaitGuard(g *Group) {
	for guardPid(g) == 0 {
		select {
		case <-g.Done():
			return
		case <-time.After(time.Millisecond):
		}
	}
}

func zombies() (n int) {
	names, _ := os.ReadDir("/proc")
	for _, name := range names {
		if s, ok := procstat.Read(name.Name()); ok && s.Ended {
			n++
		}
	}
	return n
}

// tickMain writes the time to a file every few milliseconds, and its pid to another.
func tickMain(args []string) {
	signal.Ignore(unix.SIGHUP)
	if err := os.WriteFile(args[0]+".pid", []byte(strconv.Itoa(os.Getpid())), 0o600); err != nil {
		panic(err)
	}
	f, err := os.OpenFile(args[0], os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		panic(err)
	}
	for {
		fmt.Fprintln(f, int64(clock.System{}.Elapsed()))
		time.Sleep(5 * time.Millisecond)
	}
}

// blockedMain executes its arguments with SIGUSR1 and SIGTERM blocked.
func blockedMain(args []string) {
	runtime.LockOSThread()
	set := unix.Sigset_t{}
	set.Val[0] = 1<<(unix.SIGUSR1-1) | 1<<(unix.SIGTERM-1)
	if err := unix.PthreadSigmask(unix.SIG_BLOCK, &set, nil); err != nil {
		panic(err)
	}
	panic(unix.Exec(args[0], args, os.Environ()))
}

// outsideMain leaves behind a process of its group whose parent has left the
// group and lives on: "outside gate" is the leader, "outside gate pgid" that parent. The
// process ends when the pipe gate was opened and closed.
func outsideMain(args []string) {
	if len(args) == 1 {
		argv := self("outside", args[0], strconv.Itoa(unix.Getpgrp()))
		c := exec.Command(argv[0], argv[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
		c.Stdout = os.Stdout
		r, w, _ := os.Pipe()
		c.ExtraFiles = []*os.File{w}
		if err := c.Start(); err != nil {
			panic(err)
		}
		w.Close()
		_, _ = r.Read(make([]byte, 1)) // until the member runs
		return
	}
	pgid, _ := strconv.Atoi(args[1])
	unix.CloseOnExec(3)
	c := exec.Command("cat", args[0])
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pgid: pgid}
	if err := c.Start(); err != nil {
		panic(err)
	}
	os.NewFile(3, "ready").Close()
	_ = c.Wait()
	fmt.Println("member ended")
	time.Sleep(10 * time.Second)
}

func foregroundMain([]string) {
	fmt.Println("foreground:", openTerminal().ours())
}

// trivialMain is for measurements.
func trivialMain(args []string) {
	if args[0] == "plain" {
		if err := exec.Command(args[1], args[2:]...).Run(); err != nil {
			panic(err)
		}
		return
	}
	g, err := begin(Command{Args: args[1:]}, time.Minute)
	if err != nil {
		panic(err)
	}
	<-g.Done()
	g.Close()
}
