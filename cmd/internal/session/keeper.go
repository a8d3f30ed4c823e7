package session

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// Keeper holds a lock for a script, in a process of its own.
type Keeper struct {
	Request Request
	Line    *daemon.Line
	Token   string
	Owner   *identity.Process // the process that the lock is for, or nil
	OnLost  string            // warn, or term or kill, which signal the owner
	// Describe returns an error in JSON, for News and Answer.
	Describe func(error) json.RawMessage
}

type keeper struct {
	Keeper
	holder
	owner    *daemon.Owner // nil without Owner
	reported atomic.Bool   // acquire has got the lock; the log gets later events
	ended    sync.Once     // the first result of the work counts
}

// Run acquires the lock and holds it until the release. Its error is the reason why there is no lock.
func (c Keeper) Run() error {
	k := &keeper{Keeper: c, holder: holder{Request: c.Request}}
	k.show = k.report
	return k.run()
}

func (k *keeper) run() error {
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	k.cancel = cancel
	if k.Owner != nil {
		k.owner = daemon.Watch(*k.Owner)
	}
	go k.watch(cancel)
	listener, err := daemon.Listen(k.Token)
	if err != nil {
		return err
	}
	defer listener.Close()
	if err := k.open(); err != nil {
		return err
	}
	err = k.acquire(ctx)
	if err == nil {
		defer func() {
			k.end(false) // unless the script has released the lock
			k.release()
		}()
	}
	if why := context.Cause(ctx); why != nil && (err == nil || why != errOwn) {
		return why
	}
	if err != nil {
		return err
	}
	go listener.Serve(k.serve)
	k.reported.Store(true)
	holding := k.holding()
	go func() { _ = k.Line.Tell(News{Held: &holding}) }() // it blocks while acquire is stopped
	k.hold(ctx)
	return nil
}

// hold waits for the end of ctx, and handles a loss.
func (k *keeper) hold(ctx context.Context) {
	for lost := k.lock.Context().Done(); ; {
		select {
		case <-ctx.Done():
			if why := context.Cause(ctx); why != replock.ErrReleased {
				k.say("the lock is released: %v", why)
			}
			return
		case <-lost:
			lost = nil
			if loss := k.lock.Lost(); loss != nil {
				k.onLost(loss.Err)
			}
		}
	}
}

// watch ends the keeper when its owner ends, when acquire ends before it has accepted the lock, or at a signal.
func (k *keeper) watch(cancel context.CancelCauseFunc) {
	var ended <-chan struct{}
	if k.owner != nil {
		ended = k.owner.Ended()
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, syscall.SIGTERM, syscall.SIGQUIT)
	select {
	case <-ended:
		cancel(fault.OwnerEnded)
	case <-k.Line.Abandoned():
		cancel(errAbandoned)
	case sig := <-signals:
		cancel(Signalled(sig))
	}
}

// report sends an event of the lock to acquire, or writes it into the log.
func (k *keeper) report(e replock.Event) {
	if k.reported.Load() {
		k.Console.Event(e)
		return
	}
	n := News{Event: &e}
	if e.Err != nil {
		n.EventErr, e.Err = Words(e.Err, ""), nil
	}
	_ = k.Line.Tell(n)
}

// onLost obeys --on-lost. It doesn't resume the lock, because the script has run on.
func (k *keeper) onLost(loss error) {
	defer func() {
		k.flush() // the failures of refreshes that have caused the loss come first
		k.say("%s", Words(loss, ""))
	}()
	sig, ok := map[string]syscall.Signal{"term": syscall.SIGTERM, "kill": syscall.SIGKILL}[k.OnLost]
	if !ok || k.owner == nil {
		return
	}
	if err := k.owner.Signal(sig); err != nil {
		k.say("process %d can't be signalled: %v", k.Owner.PID, err)
		return
	}
	k.say("process %d was sent %s", k.Owner.PID, strings.ToUpper(k.OnLost))
}

// serve returns the answer to a request of the script. When the caller has sent the answer, it must call the returned
// function.
func (k *keeper) serve(ctx context.Context, do string) (answer any, then func()) {
	switch do {
	case "check":
		unseen, err := k.check(ctx)
		a := k.answer(err)
		if unseen != nil {
			a.Unseen = Words(unseen, "")
		}
		return a, nil
	case "renew":
		return k.answer(k.renew(ctx)), nil
	case "release":
		_, err := k.check(ctx)
		k.end(err == nil)
		if failed := k.lock.Release(ctx); err == nil {
			err = failed
		}
		return k.answer(err), func() { k.cancel(replock.ErrReleased) }
	default:
		return k.answer(fmt.Errorf("%.80q: %w", do, fault.UnknownOrder)), nil
	}
}

// end records the result of the script's work. Later calls do nothing.
func (k *keeper) end(success bool) {
	k.ended.Do(func() { k.finish(events.Event{Success: success}) })
}

// check looks at the lock. err is nil if the lock is held. If the store can't be reached, the lock is held as long as
// its lease lasts, and unseen is the store's error.
func (k *keeper) check(ctx context.Context) (unseen, err error) {
	unseen = k.lock.Check(ctx)
	return unseen, k.held()
}

func (k *keeper) renew(ctx context.Context) error {
	failed := k.lock.Renew(ctx)
	if err := k.held(); err != nil || failed == nil {
		return err
	}
	return fault.Errorf("the lock is held, but couldn't be refreshed now; it is lost %s unless a refresh succeeds: %w", text.In(k.left()), failed)
}

// held returns nil as long as the lock's lease lasts.
func (k *keeper) held() error {
	for {
		ended := k.lock.Context().Err() != nil
		if lost := k.lock.Lost(); lost != nil {
			return lost.Err
		}
		if ended {
			return replock.ErrReleased
		}
		if k.left() > 0 {
			return nil
		}
		time.Sleep(10 * time.Millisecond) // the loss is noticed in a moment, or a refresh was just in time
	}
}
