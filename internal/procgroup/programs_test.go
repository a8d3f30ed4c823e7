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
	programs["foreground"] = func([]string) { fmt.Println("foreground:", Foreground()) }
	programs["caught"] = caughtMain
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
	extend := f.String("extend", "", "BeforeContinue allows this much, one after the other")
	churn := f.Duration("churn", 0, "kill threads for this long")
	copied := f.Bool("copied", false, "run guards from our own path: there is no /proc")
	usr := f.Bool("usr", false, "SIGUSR1 pauses, SIGUSR2 unpauses")
	keep := f.String("keep", "", "the socket of a connection that the guard keeps")
	halt := f.Bool("halt", false, "stop ourselves while we start the command")
	if err := f.Parse(args); err != nil {
		panic(err)
	}

	out := eventsFile(*events)
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
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
	if exe := os.Args[0]; *copied {
		guardProgram = func() string { return exe }
	}
	cmd := Command{
		Args:   f.Args(),
		Expiry: map[string]Expiry{"stop": Stop, "kill": Kill, "nothing": Nothing}[*expiry],
		BeforeContinue: func(g *Group) bool {
			say("asked")
			for _, d := range strings.Fields(strings.ReplaceAll(*extend, ",", " ")) {
				allow(g, d)
				_ = g.awaitAnswer()
			}
			return !*deny
		},
		Waiting: func(n int) { say("waiting %d", n) },
		Trouble: func(err error) { say("trouble %v", err) },
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
	awaitGuard(g)
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
		go obey(g, say)
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

func allow(g *Group, until string) {
	d, err := time.ParseDuration(until)
	if err != nil {
		panic(err)
	}
	g.Allow(Allow(clock.System{}.Elapsed() + d))
}

func obey(g *Group, say func(string, ...any)) {
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		switch word, arg, _ := strings.Cut(s.Text(), " "); word {
		case "allow":
			allow(g, arg)
			say("allow 0")
		case "kill": // this process can end before it could report the result
			_ = g.Kill()
		case "guard":
			say("guard %d", guardPid(g))
		case "zombies":
			say("zombies %d", zombies())
		}
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

// caughtMain reports the signals that it gets.
func caughtMain([]string) {
	c := make(chan os.Signal, 100)
	signal.Notify(c)
	fmt.Println("ready")
	for sig := range c {
		fmt.Println("caught", sig)
	}
}

// outsideMain leaves behind a process of its group whose parent has left the
// group and lives on: "outside gate" is the leader, "outside gate pgid" that parent. The
// process ends when the pipe gate was opened and closed.
func outsideMain(args []string) {
	if len(args) == 1 {
		argv := self("outside", args[0], strconv.Itoa(unix.Getpgrp()))
		c := exec.Command(argv[0], argv[1:]...)
		c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
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
	time.Sleep(time.Second) // it must not be our end that shows
}
