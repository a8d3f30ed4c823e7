//go:build linux

package procgroup

import (
	"flag"
	"fmt"
	"net"
	"os"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/clock"
)

func init() {
	programs["parent"] = parentMain
	programs["tick"] = tickMain
	programs["foreground"] = func([]string) { fmt.Println("foreground:", Foreground()) }
}

// parentMain runs a command in a group, and reports each event.
func parentMain(args []string) {
	f := flag.NewFlagSet("parent", flag.ExitOnError)
	until := f.Duration("until", time.Minute, "")
	then := f.Duration("then", 0, "SIGUSR1 allows this much")
	expiry := f.String("expiry", "stop", "")
	events := f.String("events", "", "the file of the reports; the standard streams are the command's then")
	deny := f.Bool("deny", false, "BeforeContinue says no")
	extend := f.String("extend", "", "BeforeContinue allows this much, one after the other")
	churn := f.Duration("churn", 0, "kill threads for this long")
	copied := f.Bool("copied", false, "run guards from our own path: there is no /proc")
	usr := f.Bool("usr", false, "SIGUSR1 pauses, SIGUSR2 unpauses")
	keep := f.String("keep", "", "the socket of a connection that the guard keeps")
	halt := f.Bool("halt", false, "stop ourselves while we start the command")
	apart := f.Bool("apart", false, "guards have sessions of their own, so that the kernel doesn't continue a stopped one when we end")
	_ = f.Parse(args)
	if *apart {
		guardAttr = func() *syscall.SysProcAttr { return &syscall.SysProcAttr{Setsid: true} }
	}

	out := os.Stdout
	say := func(format string, args ...any) { fmt.Fprintf(out, format+"\n", args...) }
	allow := func(g *Group, d time.Duration) { g.Allow(Allow(clock.System{}.Elapsed() + d)) }
	if *halt {
		beforeBegin = func() {
			say("forked")
			_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
			time.Sleep(100 * time.Millisecond) // the signal can be delivered a moment later
		}
	}
	if exe := os.Args[0]; *copied {
		guardProgram = func() string { return exe }
	}
	cmd := Command{
		Args:   f.Args(),
		Expiry: map[string]Expiry{"stop": Stop, "kill": Kill, "nothing": Nothing}[*expiry],
		BeforeContinue: func(g *Group) bool {
			say("asked")
			for s := range strings.SplitSeq(*extend, ";") {
				if d, err := time.ParseDuration(s); err == nil {
					allow(g, d)
					_ = g.awaitAnswer(nil)
				}
			}
			return !*deny
		},
		Waiting: func(n int) { say("waiting %d", n) },
		Trouble: func(err error) { say("trouble %v", err) },
	}
	cmd.Stdout = os.Stdout
	if *events != "" {
		var err error
		if out, err = os.OpenFile(*events, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600); err != nil {
			panic(err)
		}
		cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
		beforeBegin = func() { say("prepared in the foreground: %t", Foreground()) }
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
	say("started %d", g.pgid)
	go func() {
		for sig := range signals {
			switch {
			case *then > 0:
				allow(g, *then)
				say("allowed")
			case *usr && sig == unix.SIGUSR1:
				say("pause: %v", g.Pause())
			case *usr && sig == unix.SIGUSR2:
				say("unpause: %v", g.Unpause())
			default:
				_ = g.Signal(sig)
			}
		}
	}()
	for end := time.Now().Add(*churn); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
		for range 8 {
			go func() { runtime.LockOSThread() }() // a locked goroutine's end ends its thread
		}
	}
	say("churned")
	<-g.Done()
	if err := g.Close(); err != nil {
		say("close: %v", err)
	}
	say("typed %d", g.Typed())
	say("done %v", g.Status())
	os.Exit(g.Status().ExitCode())
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
