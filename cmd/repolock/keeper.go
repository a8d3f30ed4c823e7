package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/keeper"
	"github.com/repolock/repolock/replock"
)

// keeperCmd is the process that holds the lock of a script. acquire starts it.
type keeperCmd struct{}

func (keeperCmd) run(*reporter, global) (int, error) {
	// Nobody who means the script's terminal means us, and whether anybody reads the log is
	// nothing to die of with the lock held.
	signal.Ignore(syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE)
	k := &keeping{over: make(chan struct{})}
	var err error
	if k.line, err = keeper.Attach(&k.order); err != nil {
		return 0, usageError{fmt.Errorf("this is for acquire to call: %w", err)}
	}
	o := k.order
	k.taking = taking{
		flags: o.Flags, global: o.Global, mode: o.Mode, operation: o.Operation, show: k.told,
		report: &reporter{global: global{Repo: o.Global.Repo, Name: o.Global.Name, Verb: o.Global.Verb}, stdout: io.Discard, stderr: stamped{os.Stderr}, terminal: func() bool { return false }},
	}
	if err := k.run(); err != nil {
		out := newJSONError(k.report, err)
		_ = k.line.Tell(news{Failure: &out})
	}
	return 0, nil
}

// keeping is one lock that is held for a script.
type keeping struct {
	order
	taking
	line  *keeper.Line
	owner *keeper.Owner // nil: nobody
	lock  *replock.Lock
	heard atomic.Bool // acquire was told what came of it: the rest is for the log
	over  chan struct{}
	once  sync.Once // closes over
}

// run holds the lock until it is to be released. Its error is why it wasn't taken.
func (k *keeping) run() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	k.cancel = cancel
	if k.Owner != nil {
		k.owner = keeper.Watch(*k.Owner)
	}
	go k.watch(cancel)
	listener, err := keeper.Listen(k.Token)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := k.open(); err != nil {
		return err
	}
	k.lock, err = k.take(ctx)
	if err == nil {
		defer k.release()
	}
	if why := context.Cause(ctx); why != nil && (err == nil || why != errNested) {
		return why
	}
	if err != nil {
		return err
	}
	go listener.Serve(k.handle)
	k.heard.Store(true)
	held := k.holding()
	go func() { _ = k.line.Tell(news{Held: &held}) }() // for whom it may take long, if they are stopped
	for lost := k.lock.Context().Done(); ; {
		select {
		case <-k.over:
			return nil
		case <-ctx.Done():
			k.say("the lock is released: %v", context.Cause(ctx))
			return nil
		case <-lost:
			lost = nil
			if loss := k.lock.Lost(); loss != nil {
				k.onLost(loss)
			}
		}
	}
}

// Why a keeper ends that nobody told to release its lock.
var (
	errAbandoned  = errors.New("acquire ended before it had told of the lock")
	errOwnerEnded = errors.New("the process that it was for has ended")
)

// watch ends the keeper with those whom it serves.
func (k *keeping) watch(cancel context.CancelCauseFunc) {
	var ended <-chan struct{}
	if k.owner != nil {
		ended = k.owner.Ended()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	select {
	case <-ended:
		cancel(errOwnerEnded)
	case <-k.line.Abandoned():
		cancel(errAbandoned)
	case sig := <-signals:
		cancel(signalled{sig.(syscall.Signal)})
	}
}

// told is told of the lock's events.
func (k *keeping) told(e replock.Event) {
	if k.heard.Load() {
		k.report.event(e)
		return
	}
	n := news{Event: &e}
	if e.Err != nil {
		n.EventErr, e.Err = oneLine(e.Err), nil
	}
	_ = k.line.Tell(n)
}

// say writes into the log. One that hangs keeps no lock held.
func (k *keeping) say(format string, args ...any) {
	said := make(chan struct{})
	go func() {
		defer close(said)
		k.report.say(format, args...)
	}()
	select {
	case <-said:
	case <-time.After(time.Second):
	}
}

// onLost does what --on-lost says. The lock isn't resumed: the script ran on.
func (k *keeping) onLost(loss error) {
	defer func() { k.say("%s", oneLine(loss)) }() // after the signal: the log may hang
	sig, ok := map[string]syscall.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL}[k.OnLost]
	if !ok || k.owner == nil {
		return
	}
	if err := k.owner.Signal(sig); err != nil {
		k.say("process %d can't be signalled: %v", k.Owner.PID, err)
		return
	}
	k.say("process %d was sent %s", k.Owner.PID, map[string]string{"term": "TERM", "kill": "KILL"}[k.OnLost])
}

// release releases the lock. What is left if that fails expires; the event tells it.
func (k *keeping) release() {
	_ = k.lock.Release(context.Background())
	k.flush()
}

// handle does what the script asks for.
func (k *keeping) handle(ctx context.Context, do string) (any, func()) {
	switch do {
	case "check":
		return k.answer(k.confirm(ctx)), nil
	case "renew":
		return k.answer(k.renew(ctx)), nil
	case "release":
		err := k.confirm(ctx)
		k.audit.done(err == nil)
		if failed := k.lock.Release(ctx); err == nil {
			err = failed
		}
		return k.answer(err), func() { k.once.Do(func() { close(k.over) }) }
	default:
		return k.answer(usageError{fmt.Errorf("%.80q: this version of repolock doesn't do that", do)}), nil
	}
}

// confirm returns nil if the lock is held. If the store can't be reached now, nobody can
// have got in: the lease still lasts.
func (k *keeping) confirm(ctx context.Context) error {
	_ = k.lock.Confirm(ctx)
	return k.leased()
}

// renew refreshes the lock now.
func (k *keeping) renew(ctx context.Context) error {
	failed := k.lock.Check(ctx)
	if err := k.leased(); err != nil || failed == nil {
		return err
	}
	return fmt.Errorf("the lock is held, and could not be refreshed now; it is lost in %v unless that succeeds: %w", k.left().Round(time.Second), failed)
}

// leased returns nil as long as the lock's lease lasts.
func (k *keeping) leased() error {
	for k.lock.Context().Err() == nil {
		if k.left() > 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // it will be lost in a moment, if it wasn't refreshed in this one
	}
	if lost := k.lock.Lost(); lost != nil {
		return lost
	}
	return replock.ErrReleased
}

func (k *keeping) left() time.Duration { return k.lock.Deadline() - clock.System{}.Elapsed() }

// holding is what a script is told of its lock. Fields are only ever added.
type holding struct {
	Token     string `json:"token"`
	ID        string `json:"id"`
	Mode      string `json:"mode"`
	Operation string `json:"operation"`
	Key       string `json:"key"`
	Fence     uint64 `json:"fence,omitempty"`
	KeeperPID int    `json:"keeper_pid"`
	ForPID    int    `json:"for_pid,omitempty"`
	// HeldUntil is when it is lost unless it is refreshed before.
	HeldUntil   time.Time `json:"held_until"`
	LeftSeconds float64   `json:"left_seconds"`
	// Deadline is the same on the keeper's clock since boot, which nobody sets.
	Deadline time.Duration `json:"deadline_boot_ns"`
}

func (k *keeping) holding() holding {
	fence, _ := k.lock.Fence()
	left := max(k.left(), 0)
	h := holding{
		Token: k.Token, ID: k.lock.ID(), Mode: k.lock.Mode().String(), Operation: k.lock.Operation(), Key: k.lock.Key(), Fence: fence,
		KeeperPID: os.Getpid(), HeldUntil: clock.System{}.Now().Add(left).UTC(), LeftSeconds: seconds(left), Deadline: k.lock.Deadline(),
	}
	if k.Owner != nil {
		h.ForPID = k.Owner.PID
	}
	return h
}

// answer is what check, renew and release are told. Fields are only ever added.
type keeperAnswer struct {
	holding
	// TimeNamespace names the clock since boot that the deadline is on.
	TimeNamespace string     `json:"time_namespace,omitempty"`
	Failure       *jsonError `json:"failure,omitempty"`
}

// over reports whether the lease was over when the answer was read: we may have been
// stopped since the keeper gave it. The deadline is on another clock than ours if the
// keeper is in another time namespace, or doesn't tell in which; then what was left
// counts from when it was asked.
func (a keeperAnswer) over(asked, read time.Duration, namespace string) bool {
	if a.TimeNamespace == "" || a.TimeNamespace != namespace {
		return read-asked >= time.Duration(a.LeftSeconds*float64(time.Second))
	}
	return read >= a.Deadline
}

func (k *keeping) answer(err error) keeperAnswer {
	a := keeperAnswer{holding: k.holding(), TimeNamespace: identity.Self().TimeNamespace}
	if err != nil {
		out := newJSONError(k.report, err)
		a.Failure = &out
	}
	return a
}

// stamped writes lines, each with the time.
type stamped struct{ to io.Writer }

func (s stamped) Write(line []byte) (int, error) {
	_, err := fmt.Fprintf(s.to, "%s %s", clock.System{}.Now().UTC().Format(time.RFC3339), line)
	return len(line), err
}
