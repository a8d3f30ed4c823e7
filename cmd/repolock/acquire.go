package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

type acquireCmd struct {
	Shared    bool   `xor:"mode" help:"Hold a shared lock."`
	Exclusive bool   `xor:"mode" help:"Hold the exclusive lock."`
	Operation string `placeholder:"NAME" default:"script" help:"The operation that other users see."`
	lockFlags
	ForPID cli.ForPID `name:"for-pid" placeholder:"PID|none" help:"Release the lock when this process ends. The default is the caller; in a shell, give $$$$ to be sure. none holds the lock until release or reboot."`
	OnLost string     `placeholder:"warn|term|kill" enum:"warn,term,kill" default:"warn" help:"What to do to the process of --for-pid when the lock is lost: warn (default) does nothing, and only the file of --log and repolock check report the loss; term and kill signal this process alone."`
	Log    string     `once:"" placeholder:"FILE" help:"Append messages about the held lock to this file."`
	Export bool       `help:"Print variables for a shell to evaluate: a repolock in the script then knows of the lock."`
}

// order checks the flags. It returns the plan, and the order to send to the keeper.
func (c acquireCmd) order(g global) (p plan, o keeperOrder, err error) {
	if err := c.check(); err != nil {
		return p, o, err
	}
	if g.Unknown != nil { // gob doesn't encode it
		return p, o, g.Unknown
	}
	mode := replock.Exclusive
	if c.Shared {
		mode = replock.Shared
	}
	if p, err = c.plan(g, mode, c.Operation); err != nil {
		return p, o, err
	}
	badOperation := replock.CheckOperation(c.Operation)
	switch {
	case !c.Shared && !c.Exclusive:
		err = errors.New("say which lock: --shared or --exclusive")
	case c.HeldCode == 0:
		err = errors.New("--held-exit-code 0: a script would treat 0 as an acquired lock")
	case c.Export && g.JSON:
		err = errors.New("--export and --json can't be used together")
	case badOperation != nil:
		err = badOperation
	case c.OnLost != "warn" && c.ForPID.None:
		err = fmt.Errorf("--on-lost %s: with --for-pid none there is no process to signal", c.OnLost)
	case c.OnLost != "warn" && runtime.GOOS != "linux":
		err = fmt.Errorf("--on-lost %s: works on Linux only; elsewhere a later process can have the same pid", c.OnLost)
	case sameFile(c.Log, c.Metrics):
		err = errors.New("--metrics-file: would replace the file of --log: name another file")
	case c.Metrics != "": // the keeper writes it in another directory
		if c.Metrics, err = filepath.Abs(c.Metrics); err != nil {
			err = fmt.Errorf("--metrics-file: %w", err)
		}
	}
	if err != nil {
		return p, o, fault.As(fault.Usage, err)
	}
	g.File, g.Listed = nil, "" // the keeper needs neither
	o = keeperOrder{Flags: c.lockFlags, Global: g, Mode: mode, Operation: c.Operation, Token: daemon.NewToken(), OnLost: c.OnLost}
	o.Owner, err = c.ForPID.Process()
	return p, o, err
}

// goesNowhere reports whether a file is the null device. If stdout is closed, Go opens the null device in its place.
func goesNowhere(f *os.File) bool {
	info, err := f.Stat()
	null, missing := os.Stat(os.DevNull)
	return err == nil && missing == nil && os.SameFile(info, null)
}

func (c acquireCmd) run(r *show.Reporter, g global) (int, error) {
	if err := daemon.Supported(); err != nil {
		return 0, fault.New(fault.Usage, "acquire: %w: write repolock run, which runs the command itself", err)
	}
	p, o, err := c.order(g)
	if err == nil {
		err = procgroup.CheckRoom()
	}
	if err != nil {
		return 0, err
	}
	if out, ok := r.Stdout.(*os.File); ok && c.ForPID.None && goesNowhere(out) {
		return 0, fault.New(fault.Usage, "--for-pid none: only the token can release the lock, and stdout is closed or /dev/null: redirect it to a file")
	}
	var log *os.File
	if c.Log != "" {
		if log, err = regular.Append(c.Log); err != nil {
			return 0, g.cantWrite("log", c.Log, err)
		}
		defer log.Close()
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	survey := newSurvey(r, g)
	survey.Start(ctx)
	k, err := daemon.Start([]string{"keeper"}, o, log)
	if err != nil && !errors.Is(err, procgroup.ErrNoExecutable) { // ErrNoExecutable: no keeper was started
		err = fmt.Errorf("%w: %w", fault.KeeperFailed, err)
	}
	if err != nil {
		return 0, err
	}
	heard := listen(k)
	held, err := c.await(r, p, k, heard)
	if err != nil {
		return 0, err
	}
	defer survey.Report()()
	if err = c.print(r, p, *held); err == nil {
		if err = k.Accept(); err != nil {
			err = fmt.Errorf("%w: %w", fault.KeeperFailed, err)
		}
	}
	if err != nil {
		k.GiveUp()
		for range heard { // until the keeper has released the lock and ended
		}
	}
	return 0, err
}

// listen returns a channel of the keeper's news. The channel is closed when the keeper ends.
func listen(k *daemon.Starter) <-chan session.News {
	heard := make(chan session.News)
	go func() {
		defer close(heard)
		for {
			var n session.News
			if k.Next(&n) != nil {
				return
			}
			heard <- n
		}
	}()
	return heard
}

// await shows the keeper's news until the keeper holds the lock, or a signal comes.
func (c acquireCmd) await(r *show.Reporter, p plan, k *daemon.Starter, heard <-chan session.News) (*session.Holding, error) {
	signals, stop := procgroup.Signals()
	defer stop()
	r.BeginWait(session.Acquiring(p.places))
	defer r.EndWait()
	for interrupted := error(nil); ; {
		select {
		case sig := <-signals:
			if !session.Ends(sig) {
				continue
			}
			if interrupted != nil { // the second signal: the keeper might be stopped, and not end
				return nil, interrupted
			}
			interrupted = session.Signalled(sig)
			k.GiveUp()
			r.Interrupted()
		case n, open := <-heard:
			switch {
			case !open && interrupted != nil:
				return nil, interrupted
			case !open:
				return nil, fault.KeeperFailed
			case interrupted != nil:
			case n.Failure != nil:
				return nil, show.NewDescribedError(n.Failure)
			case n.Held != nil:
				return n.Held, nil
			default:
				if n.EventErr != "" {
					n.Event.Err = errors.New(n.EventErr)
				}
				r.Event(*n.Event)
			}
		}
	}
}

func (c acquireCmd) print(r *show.Reporter, p plan, held session.Holding) error {
	words := held.Token
	if c.Export {
		words = "export REPOLOCK_TOKEN=" + held.Token
		ids := held.IDs
		if len(ids) == 0 {
			ids = []string{held.ID}
		}
		env := session.Environ(p.places, ids, held.Mode, held.Fence, held.Token)
		for _, v := range env {
			name, value, _ := strings.Cut(v, "=")
			words += " " + name + "=" + text.Quote(value)
		}
		for _, name := range session.Unset(env) {
			words += "; unset " + name
		}
	}
	return r.Result(held, words+"\n")
}

// keeperCmd holds the lock of a script in the background. acquire starts it.
type keeperCmd struct{}

// keeperOrder describes the lock that a keeper must acquire. acquire sends it to the keeper that it has started.
type keeperOrder struct {
	Flags     lockFlags
	Global    global
	Mode      replock.Mode
	Operation string
	Token     string
	Owner     *identity.Process // nil: none
	OnLost    string
}

func (keeperCmd) run(*show.Reporter, global) (int, error) {
	// Ignore terminal signals meant for the script, and SIGPIPE from a closed log.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	var o keeperOrder
	line, err := daemon.Attach(&o)
	if err != nil {
		return 0, fault.New(fault.Usage, "only acquire can start a keeper: %w", err)
	}
	log := &show.Reporter{
		Options: show.Options{Verbose: o.Global.Verb, Place: o.Global.place(), Flags: o.Global.Typed}, Command: "acquire", Patience: patience, Stdout: io.Discard, Stderr: stamped{os.Stderr},
	}
	p, err := o.Flags.plan(o.Global, o.Mode, o.Operation)
	if err == nil {
		k := session.Keeper{Request: p.request(log), Line: line, Token: o.Token, Owner: o.Owner, OnLost: o.OnLost}
		// This reporter has no Command. With a Command, it would add "no lock was taken" to the description of an error.
		k.Describe = func(err error) json.RawMessage { return show.DescribeJSON(&show.Reporter{Options: log.Options}, err) }
		err = k.Run()
	}
	if err != nil {
		_ = line.Tell(session.News{Failure: show.DescribeJSON(log, err)})
	}
	return 0, nil
}

// stamped writes the current time before each line.
type stamped struct{ to io.Writer }

func (s stamped) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(s.to, "%s %s", clock.System{}.Now().UTC().Format(time.RFC3339), line)
	return len(line), err
}

// tokenCmd sends a request to the keeper of a lock that acquire has acquired.
type tokenCmd struct {
	Token string `arg:"" optional:"" env:"REPOLOCK_TOKEN" help:"The token that acquire printed. The default is REPOLOCK_TOKEN."`

	do string // "check", "renew" or toRelease
}

// toRelease is the request of the command release.
const toRelease = "release"

func (c tokenCmd) run(r *show.Reporter, _ global) (int, error) {
	h, err := c.ask(r)
	if err != nil {
		return 0, err
	}
	words := ""
	if c.do != toRelease {
		if h.Unseen != "" && !r.JSON {
			r.Alert("unseen", fmt.Sprintf("the repository could not be looked into: %s; the lock is held for %s, and then lost unless it can be refreshed", h.Unseen, text.Duration(h.Left())))
		}
		if !r.Quiet {
			words = fmt.Sprintf("%s lock %s, operation %s, is held until %s unless refreshed (%v)\n", h.Mode, h.ID,
				text.Brief(h.Operation), h.HeldUntil.Format(time.RFC3339), h.Left().Round(time.Second))
		}
	}
	return 0, r.Result(h, show.Folded(words, show.ColumnsOf(os.Stdout)))
}

// ask sends the request to the keeper, and returns the lock that the keeper holds.
func (c tokenCmd) ask(r *show.Reporter) (h session.Holding, err error) {
	if err := daemon.Supported(); err != nil {
		return h, fault.As(fault.Usage, err)
	}
	if c.Token == "" {
		return h, fault.New(fault.Usage, "no token: give the one that acquire printed, or set REPOLOCK_TOKEN")
	}
	if err := daemon.CheckToken(c.Token); err != nil {
		return h, fault.As(fault.Usage, err)
	}
	var a session.Answer
	asked := clock.System{}.Elapsed()
	r.BeginWait("asking the keeper of the lock", "")
	defer r.EndWait()
	if err := daemon.Ask(c.Token, c.do, &a, c.do == toRelease); err != nil {
		return h, err
	}
	if a.Failure != nil {
		return h, show.NewDescribedError(*a.Failure)
	}
	if c.do != toRelease && a.Over(asked, clock.System{}.Elapsed(), identity.Self().TimeNamespace) {
		return h, fmt.Errorf("%w: its lease was over when the keeper's answer was read", replock.ErrLost)
	}
	return a.Holding, nil
}
