package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/keeper"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/replock"
)

type acquireCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	Operation string `default:"script" help:"What others are shown as the operation."`
	takeFlags
	ForPID forPID `name:"for-pid" placeholder:"PID|none" help:"Release the lock when this process has ended: who calls, unless said otherwise; $$$$ in a shell is the surest. With none it is held until it is released or the machine ends."`
	OnLost string `enum:"warn,term,kill" default:"warn" help:"What becomes of that process when the lock is lost: warn is for --log and for check to tell; term and kill signal it, and it alone."`
	Log    string `placeholder:"FILE" help:"Append what there is to say of the lock to this file, once it is held."`
	Export bool   `help:"Print what a shell is to evaluate, so that a repolock which the script calls knows that it runs under the lock."`
}

func (acquireCmd) Help() string {
	return `Prints a token, for check, renew and release. The lock is held and refreshed by a process in the background, the keeper,
until it is told to release it, or the process that called has ended. A script begins with

  TOKEN=$(repolock acquire --shared --for-pid $$) || exit
  export REPOLOCK_TOKEN=$TOKEN

and asks repolock check before what must not be done without the lock. docs/scripts.md has the whole of it.`
}

// forPID is the process that a lock is for.
type forPID struct {
	pid  int // 0: who calls
	none bool
}

// UnmarshalText understands a pid, and "none".
func (f *forPID) UnmarshalText(text []byte) error {
	if string(text) == "none" {
		*f = forPID{none: true}
		return nil
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil || pid <= 0 {
		return fmt.Errorf("%.80q: must be the number of a process, or none", text)
	}
	*f = forPID{pid: pid}
	return nil
}

// process is the one that is meant, nil for none. It must exist.
func (f forPID) process() (*identity.Process, error) {
	if f.none {
		return nil, nil
	}
	pid := f.pid
	if pid == 0 {
		if pid = identity.Caller(); pid <= 1 {
			return nil, usageError{fmt.Errorf("called by process %d, which may never end: say which process the lock is for, with --for-pid PID, or that it is for none, with --for-pid none", pid)}
		}
	}
	p, ok := identity.Of(pid)
	if !ok {
		return nil, usageError{fmt.Errorf("--for-pid %d: there is no such process", pid)}
	}
	return &p, nil
}

// order is what a keeper is to hold.
type order struct {
	Flags     takeFlags
	Global    global
	Mode      replock.Mode
	Operation string
	Token     string
	Owner     *identity.Process // nil: nobody
	OnLost    string
}

// news is what a keeper tells until it has its lock: what happens, and at last what it
// holds, or why it doesn't.
type news struct {
	Event    *replock.Event
	EventErr string // its Err
	Held     *holding
	Failure  *jsonError
}

// errKeeperFailed: it ended without a word.
var errKeeperFailed = errors.New("the keeper of the lock ended unexpectedly; what it may have left in the repository expires")

// keeperError is an error that a keeper has described.
type keeperError struct{ jsonError }

func (e keeperError) Error() string { return e.Message }

// order checks what was asked for.
func (c acquireCmd) order(g global) (order, error) {
	if err := c.check(); err != nil {
		return order{}, err
	}
	if g.unknown != nil { // which gob would leave behind
		return order{}, g.unknown
	}
	o := order{Flags: c.takeFlags, Global: g, Operation: c.Operation, Token: keeper.NewToken(), OnLost: c.OnLost}
	switch {
	case c.Shared:
		o.Mode = replock.Shared
	case c.Exclusive:
		o.Mode = replock.Exclusive
	default:
		return order{}, usageError{errors.New("say which lock: --shared or --exclusive")}
	}
	if c.HeldCode == 0 {
		return order{}, usageError{errors.New("--held-exit-code 0: would say that the lock is held")}
	}
	if c.Export && g.JSON {
		return order{}, usageError{errors.New("--export and --json can't be used together")}
	}
	if err := replock.CheckOperation(c.Operation); err != nil {
		return order{}, usageError{err}
	}
	if c.OnLost != "warn" && c.ForPID.none {
		return order{}, usageError{fmt.Errorf("--on-lost %s: there is no process to be signalled, with --for-pid none", c.OnLost)}
	}
	if c.OnLost != "warn" && runtime.GOOS != "linux" {
		return order{}, usageError{fmt.Errorf("--on-lost %s: on Linux alone a process can be told from a later one with the same number", c.OnLost)}
	}
	if c.Metrics != "" { // which is written again and again
		path, err := filepath.Abs(c.Metrics)
		if err != nil {
			return order{}, usageError{fmt.Errorf("--metrics-file: %w", err)}
		}
		o.Flags.Metrics = path
	}
	var err error
	o.Owner, err = c.ForPID.process()
	return o, err
}

func (c acquireCmd) run(r *reporter, g global) (int, error) {
	if err := keeper.Supported(); err != nil {
		return 0, usageError{fmt.Errorf("acquire: %w: have repolock run the command", err)}
	}
	o, err := c.order(g)
	if err != nil {
		return 0, err
	}
	var log *os.File
	if c.Log != "" {
		if log, err = regular.Append(c.Log); err != nil {
			return 0, usageError{fmt.Errorf("--log: %w", err)}
		}
		defer log.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	around := lookAround(ctx, r, g)
	k, err := keeper.Start([]string{"keeper"}, o, log)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errKeeperFailed, err)
	}
	heard := listen(k)
	held, err := c.await(r, k, heard)
	if err != nil {
		return 0, err
	}
	defer around.tell()()
	if err = c.print(r, g, *held); err == nil {
		if err = k.Accept(); err != nil {
			err = fmt.Errorf("%w: %w", errKeeperFailed, err)
		}
	}
	if err != nil {
		k.GiveUp()
		for range heard { // until it has released what it holds
		}
	}
	return 0, err
}

// listen delivers what the keeper tells, until it ends.
func listen(k *keeper.Starter) <-chan news {
	heard := make(chan news)
	go func() {
		defer close(heard)
		for {
			var n news
			if k.Next(&n) != nil {
				return
			}
			heard <- n
		}
	}()
	return heard
}

// await shows what the keeper tells until it holds the lock. A signal ends that.
func (c acquireCmd) await(r *reporter, k *keeper.Starter, heard <-chan news) (*holding, error) {
	signals, stop := child.Signals()
	defer stop()
	w := waiting{r: r}
	defer w.end()
	for interrupted := error(nil); ; {
		select {
		case sig := <-signals:
			if !ends(sig) {
				continue
			}
			if interrupted != nil { // it doesn't end: it may be stopped
				return nil, interrupted
			}
			interrupted = signalled{sig.(syscall.Signal)}
			k.GiveUp()
		case n, open := <-heard:
			switch {
			case !open && interrupted != nil:
				return nil, interrupted
			case !open:
				return nil, errKeeperFailed
			case interrupted != nil:
			case n.Failure != nil:
				return nil, keeperError{*n.Failure}
			case n.Held != nil:
				return n.Held, nil
			default:
				if n.EventErr != "" {
					n.Event.Err = errors.New(n.EventErr)
				}
				w.event(*n.Event)
			}
		}
	}
}

// print tells the caller what is held.
func (c acquireCmd) print(r *reporter, g global, held holding) error {
	switch {
	case r.JSON:
		return r.result(held)
	case c.Export:
		text := "export REPOLOCK_TOKEN=" + held.Token
		env := g.under(held.ID, held.Mode, held.Fence, held.Token)
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			text += " " + name + "=" + quote(value)
		}
		for _, name := range []string{"REPOLOCK_FENCE", nameVariable} { // of a lock around this one
			if !slices.ContainsFunc(env, func(v string) bool { return strings.HasPrefix(v, name+"=") }) {
				text += "; unset " + name
			}
		}
		_, err := fmt.Fprintln(r.stdout, text)
		return err
	default:
		_, err := fmt.Fprintln(r.stdout, held.Token)
		return err
	}
}

// quote makes one word of a text, for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
