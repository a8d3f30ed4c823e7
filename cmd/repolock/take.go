package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/replock"
)

// takeFlags are the flags of all commands that take a lock.
type takeFlags struct {
	TTL      time.Duration     `config:"" default:"60s" help:"How long the lock outlives a crash: ${default} unless said otherwise, 10s to 24h."`
	Look     time.Duration     `config:"" default:"10s" help:"How often to look whether the lock is still there: ${default} unless said otherwise, 1s to the ttl. Bounds how long a command runs on after its lock was broken, or while another holds it because this machine was paused by its hypervisor. A look is one list request."`
	Wait     patience          `config:"" default:"0s" placeholder:"DURATION|forever" help:"How long to wait while somebody else holds the lock. Whoever waits for the exclusive lock comes before all who come later."`
	HeldCode int               `config:"" name:"held-exit-code" short:"E" default:"75" placeholder:"N" help:"Exit code when somebody else holds the lock."`
	Metadata map[string]string `config:"" placeholder:"KEY=VALUE" help:"Put this into the lock for others to read. No secrets."`
	Audit    string            `predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append what happens to the lock to this file, in JSON, one event a line."`
	Metrics  string            `predictor:"file" config:"" name:"metrics-file" placeholder:"FILE" help:"Write what became of the lock to this file, for Prometheus (the textfile collector of node_exporter)."`
	Fence    bool              `help:"Take a fencing number with an exclusive lock (REPOLOCK_FENCE)."`
}

func (f takeFlags) check() error {
	switch {
	case f.TTL < replock.MinTTL || f.TTL > replock.MaxTTL:
		return usageError{fmt.Errorf("--ttl %v: must be from %v to %v", f.TTL, replock.MinTTL, replock.MaxTTL)}
	case f.Look < replock.MinLook || f.Look > f.TTL:
		return usageError{fmt.Errorf("--look %v: must be from %v to the ttl, %v", f.Look, replock.MinLook, f.TTL)}
	case f.HeldCode < 0 || f.HeldCode > 255:
		return usageError{fmt.Errorf("--held-exit-code %d: must be from 0 to 255", f.HeldCode)}
	}
	return nil
}

// taking is a lock that is to be taken, and who is told of it.
type taking struct {
	flags takeFlags
	global
	report    *reporter
	mode      replock.Mode
	operation string
	show      func(replock.Event)     // to the person
	cancel    context.CancelCauseFunc // of the context of take

	locker  *replock.Locker
	audit   *auditor
	metrics *metrics
	nested  atomic.Pointer[replock.Event] // that said that it would wait for itself
	store   *listener                     // nil until it was opened
}

// open opens what is written to.
func (t *taking) open() (err error) {
	if t.audit, err = newAuditor(t.report, t.global, t.flags.Audit); err != nil {
		return err
	}
	t.metrics, err = newMetrics(t.report, t.global, t.mode, t.operation, t.flags.Metrics)
	return err
}

// take takes the lock, and returns when all events of that have been told.
func (t *taking) take(ctx context.Context) (*replock.Lock, error) {
	s, err := t.global.store(ctx)
	if err != nil {
		return nil, err
	}
	t.store = &listener{Store: s}
	t.locker, err = t.global.lockerOn(t.store, replock.Options{
		TTL: t.flags.TTL, Look: t.flags.Look, Metadata: t.flags.Metadata, Fence: t.flags.Fence && t.mode == replock.Exclusive, Observe: t.observe,
	})
	if err != nil {
		return nil, err
	}
	take := t.locker.Shared
	if t.mode == replock.Exclusive {
		take = t.locker.Exclusive
	}
	lock, err := take(ctx, t.operation, replock.Wait(time.Duration(t.flags.Wait)))
	t.flush()
	var held *replock.HeldError
	if e := t.nested.Load(); e != nil && errors.Is(err, errNested) {
		return nil, t.held(&replock.HeldError{Mode: t.mode, Holders: e.Holders, Waited: e.Waited})
	}
	if errors.As(err, &held) {
		return nil, t.held(held)
	}
	return lock, err
}

func (t *taking) held(err *replock.HeldError) error {
	_, nested := t.ownOuter(err.Holders)
	return heldError{err, t.flags.HeldCode, nested, t.looked()}
}

// flush has all events told, unless nobody reads what is printed.
func (t *taking) flush() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	t.locker.Flush(ctx)
}

// observe is told of the lock's events.
func (t *taking) observe(e replock.Event) {
	t.audit.event(e, t.flags.TTL)
	t.metrics.event(e)
	if e.Kind == replock.EventWaiting {
		if _, nested := t.ownOuter(e.Holders); nested && t.nested.CompareAndSwap(nil, &e) {
			t.cancel(errNested)
		}
	}
	t.show(e)
}
