// Command gotest runs go test. It prints the result of each package, the whole output of
// failed tests, at least every 10 s the tests that run, and at the end the slowest tests, the names
// of those that failed, and the numbers of tests that passed, failed and were left to the long suite. Its exit code is that of go test, but
// 1 if a test has failed or a package hasn't ended.
//
//	gotest GO ARGUMENTS…
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: gotest GO ARGUMENTS…")
		os.Exit(64)
	}
	code, err := run(os.Args[1], os.Args[2:], os.Stdout)
	if err != nil {
		fmt.Fprintf(os.Stderr, "gotest: %v\n", err)
	}
	os.Exit(code)
}

// run runs go test, and returns its exit code.
func run(program string, args []string, out io.Writer) (int, error) {
	// A terminal sends SIGINT to go test as well. The summary must be printed all the same.
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	cmd := exec.Command(program, append([]string{"test", "-json", "-p", strconv.Itoa(beside())}, args...)...)
	cmd.Stdin, cmd.Stderr = os.Stdin, os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		return 1, err
	}
	lines, read := make(chan []byte), make(chan error, 1)
	go func() { read <- scan(stdout, lines) }()

	r := newReport(out, time.Now())
	r.print(time.Now(), "go test "+strings.Join(args, " ")+"\n")
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for open := true; open; {
		select {
		case line, more := <-lines:
			if open = more; more {
				r.line(line, time.Now())
			}
		case now := <-tick.C:
			r.tick(now)
		case sig := <-signals:
			_ = cmd.Process.Signal(sig)
		}
	}
	unread := <-read
	failed := cmd.Wait()
	r.end(time.Now(), cmd.ProcessState.UserTime()+cmd.ProcessState.SystemTime())
	var exit *exec.ExitError
	switch {
	case failed == nil && unread == nil && r.failed > 0: // a test binary that another program has replaced
		return 1, nil
	case failed == nil && unread == nil:
		return 0, nil
	case errors.As(failed, &exit) && exit.ExitCode() > 0:
		return exit.ExitCode(), unread
	default:
		return 1, errors.Join(failed, unread)
	}
}

// beside is how many packages are tested at a time, if no argument says it: more than there are
// processors, because most tests wait for other processes, and for time.
func beside() int { return 3 * runtime.GOMAXPROCS(0) }

// scan sends each line, and closes lines when there are no more.
func scan(r io.Reader, lines chan<- []byte) error {
	defer close(lines)
	in := bufio.NewReader(r)
	for {
		line, err := in.ReadBytes('\n')
		if len(line) > 0 {
			lines <- line
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// event is a line of go test -json: go doc test2json.
type event struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64 // seconds
}

// line takes a line of go test's.
func (r *report) line(raw []byte, now time.Time) {
	var e event
	if err := json.Unmarshal(raw, &e); err != nil || e.Action == "" {
		r.print(now, string(raw)) // not an event
		return
	}
	r.event(e, now)
}
