package main

import (
	"fmt"
	"time"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/replock"
)

// lockFlags are the flags of all commands that acquire a lock.
type lockFlags struct {
	TTL       time.Duration     `config:"" default:"60s" help:"How long the lock outlives a crash: 10s to 24h, ${default} by default."`
	Look      time.Duration     `config:"" default:"10s" help:"How often to look whether the lock is still there: 1s to the ttl, ${default} by default. Bounds how long a command runs on after its lock was broken, or after its hypervisor paused this machine and another holder got the lock. A look is one list request."`
	Wait      waitTime          `config:"" default:"0s" placeholder:"DURATION|forever" help:"How long to wait for the lock while it is held. A wait for the exclusive lock comes before all that begin later."`
	HeldCode  int               `config:"" name:"held-exit-code" short:"E" default:"75" placeholder:"N" help:"Exit code when the lock is held."`
	Metadata  map[string]string `config:"" placeholder:"KEY=VALUE" help:"Put this into the lock for others to read. No secrets."`
	Audit     string            `predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append what happens to the lock to this file, in JSON, one event a line."`
	Metrics   string            `predictor:"file" config:"" name:"metrics-file" placeholder:"FILE" help:"Write the state of the lock to this file, for Prometheus (the textfile collector of node_exporter)."`
	Fence     bool              `help:"Take a fencing number with an exclusive lock (REPOLOCK_FENCE)."`
	Also      []string          `predictor:"lock" sep:"none" placeholder:"URL" help:"Hold this lock too, or alone if no repository is given: ${also}. Repeatable: all locks are held, or none. docs/also.md"`
	Settle    time.Duration     `default:"0s" help:"With --also: how long to wait, with all locks held, before the command starts, so that work which has begun without looking can end. If a lock is gone then, the command doesn't start."`
	ForceLock bool              `help:"With --also tower-fleet:DIR/NAME: steal the lock if it is stale. A live lock is never stolen."`
}

func (f lockFlags) check() error {
	switch {
	case f.TTL < replock.MinTTL || f.TTL > replock.MaxTTL:
		return usageError{fmt.Errorf("--ttl %v: must be from %v to %v", f.TTL, replock.MinTTL, replock.MaxTTL)}
	case f.Look < replock.MinLook || f.Look > f.TTL:
		return usageError{fmt.Errorf("--look %v: must be from %v to the ttl, %v", f.Look, replock.MinLook, f.TTL)}
	case f.Settle < 0:
		return usageError{fmt.Errorf("--settle %v: must not be negative", f.Settle)}
	case f.HeldCode < 0 || f.HeldCode > 255:
		return usageError{fmt.Errorf("--held-exit-code %d: must be from 0 to 255", f.HeldCode)}
	}
	return nil
}

// request asks for the locks with these flags.
func (f lockFlags) request(r *reporter, g global, mode replock.Mode, operation string) (session.Request, error) {
	request := session.Request{
		TTL: f.TTL, HeldCode: f.HeldCode, Console: &console{reporter: r},
		Sinks: func() ([]events.Sink, error) { return f.sinks(r, g, mode, operation) },
	}
	targets, err := also.Parse(f.Also)
	if err != nil {
		return request, err
	}
	repository := func(g global) *session.Repository {
		return &session.Repository{
			Open: g.store, New: g.lockerOn, Mode: mode, Operation: operation, Wait: time.Duration(f.Wait), Fence: f.Fence,
			Options: replock.Options{TTL: f.TTL, Look: f.Look, Metadata: f.Metadata},
		}
	}
	var first *session.Repository
	if !g.alone(targets) {
		request.Place, first = g.place(), repository(g)
	}
	if len(targets) == 0 {
		request.Locker = first
		return request, nil
	}
	for _, t := range targets {
		request.Others = append(request.Others, t.Place)
	}
	ask := f.alsoRequest(operation)
	ask.Repository = func(p session.Place) *session.Repository { return repository(g.at(p)) }
	request.Locker = also.NewSet(first, targets, ask)
	return request, nil
}

// sinks opens the audit log and the file of metrics.
func (f lockFlags) sinks(r *reporter, g global, mode replock.Mode, operation string) (sinks []events.Sink, _ error) {
	if f.Audit != "" {
		log, err := events.NewAuditor(f.Audit, session.Redact(g.Repo), g.Name, r.Say)
		if err != nil {
			return nil, usageError{fmt.Errorf("--audit: %w", err)}
		}
		sinks = append(sinks, log)
	}
	if f.Metrics != "" {
		name, locks := f.named(g)
		metrics, err := events.NewMetrics(f.Metrics, name, locks, mode, operation, r.Say)
		if err != nil {
			return nil, usageError{fmt.Errorf("--metrics-file: %w", err)}
		}
		sinks = append(sinks, metrics)
	}
	return sinks, nil
}

// waitTime is --wait.
type waitTime time.Duration

// UnmarshalText parses a duration or "forever".
func (p *waitTime) UnmarshalText(text []byte) error {
	if string(text) == "forever" {
		*p = waitTime(replock.Forever)
		return nil
	}
	d, err := time.ParseDuration(string(text))
	switch {
	case err != nil:
		return fmt.Errorf("%.80q: must be a time such as 90s, 15m or 2h, or forever", text)
	case d < 0:
		return fmt.Errorf("%v: must not be negative", d)
	}
	*p = waitTime(d)
	return nil
}
