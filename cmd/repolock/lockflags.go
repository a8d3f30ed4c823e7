package main

import (
	"errors"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// lockFlags are the flags of all commands that acquire a lock.
type lockFlags struct {
	TTL       time.Duration     `brief:"How long the lock outlives a crash" config:"" default:"60s" help:"How long the lock outlives a crash: 10s to 24h, ${default} by default, and 15m for one of tower-fleet."`
	Look      time.Duration     `rare:"" brief:"How often to look whether it is still there" config:"" default:"10s" help:"How often to look whether the lock is still there: 1s to the ttl, ${default} by default. Bounds how long a command runs on after its lock was broken, or after its hypervisor paused this machine and another holder got the lock. A look is one list request."`
	Wait      waitTime          `brief:"Wait while it is held" config:"" default:"0s" placeholder:"TIME|forever" help:"How long to wait for the lock while it is held. A wait for the exclusive lock comes before all that begin later."`
	HeldCode  int               `rare:"" brief:"The exit code when it is held (75)" config:"" name:"held-exit-code" short:"E" default:"75" placeholder:"N" help:"Exit code when the lock is held, ${default} by default."`
	Metadata  map[string]string `rare:"" brief:"Put this into the lock, for others to read" config:"" placeholder:"KEY=VALUE" help:"Put this into the lock for others to read. No secrets."`
	Audit     string            `once:"" rare:"" brief:"Append the lock's events to this file, as JSON" predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append what happens to the lock to this file, in JSON, one event a line."`
	Metrics   string            `once:"" rare:"" brief:"Write the lock's state, for Prometheus" predictor:"file" config:"" name:"metrics-file" placeholder:"FILE" help:"Write the state of the lock to this file, for Prometheus (the textfile collector of node_exporter)."`
	Job       string            `rare:"" brief:"Name the job, in the audit log and the metrics" placeholder:"NAME" env:"REPOLOCK_JOB" help:"Name what runs, in the audit log and the metrics: the label job_name. Jobs of one operation on one repository need names to be told apart."`
	Fence     bool              `rare:"" brief:"Take a fencing number (REPOLOCK_FENCE)" help:"Take a fencing number with an exclusive lock (REPOLOCK_FENCE)."`
	Also      []string          `brief:"Hold another system's lock, too" predictor:"lock" sep:"none" placeholder:"URL" help:"Hold this lock too, or alone if no repository is given: ${also}. Repeatable: all locks are held, or none. docs/also.md"`
	Settle    time.Duration     `rare:"" brief:"Wait before the command starts (--also)" default:"0s" help:"With --also: how long to wait, with all locks held, before the command starts, so that work which has begun without looking can end. If a lock is gone then, the command doesn't start."`
	ForceLock bool              `rare:"" brief:"Steal a stale lock of tower-fleet" help:"With --also tower-fleet:DIR/NAME: steal the lock if it is stale. A live lock is never stolen."`
}

func (f lockFlags) check() error {
	switch {
	case f.TTL < replock.MinTTL || f.TTL > replock.MaxTTL:
		return fault.New(fault.Usage, "--ttl %s: must be from %s to %s", plainly(f.TTL), plainly(replock.MinTTL), plainly(replock.MaxTTL))
	case f.Look < replock.MinLook || f.Look > f.TTL:
		return fault.New(fault.Usage, "--look %s: must be from %s to the ttl, %s", plainly(f.Look), plainly(replock.MinLook), plainly(f.TTL))
	case f.Settle < 0:
		return fault.New(fault.Usage, "--settle %v: must not be negative", f.Settle)
	case len(f.Job) > maxJob || !utf8.ValidString(f.Job):
		return fault.New(fault.Usage, "--job %q: must have at most %d bytes, of UTF-8", text.Brief(f.Job), maxJob)
	case f.HeldCode < 0 || f.HeldCode > 255:
		return fault.New(fault.Usage, "--held-exit-code %d: must be from 0 to 255", f.HeldCode)
	case sameFile(f.Audit, f.Metrics):
		return fault.New(fault.Usage, "--metrics-file: is the file of --audit, which it would replace: name another")
	}
	return nil
}

// sameFile reports whether two flags name one file.
func sameFile(a, b string) bool { return a != "" && b != "" && regular.Same(a, b) }

// maxJob bounds --job, as an operation's name is bounded.
const maxJob = 256

// request asks for the locks with these flags.
func (f lockFlags) request(r *reporter, g global, mode replock.Mode, operation string) (session.Request, error) {
	request := session.Request{
		TTL: f.shortest(g), HeldCode: f.HeldCode, Console: newConsole(r),
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
	ask := f.alsoRequest(g, operation)
	ask.Repository = func(p session.Place) *session.Repository { return repository(g.at(p)) }
	request.Locker = also.NewSet(first, targets, ask)
	return request, nil
}

// sinks opens the audit log and the file of metrics.
func (f lockFlags) sinks(r *reporter, g global, mode replock.Mode, operation string) (sinks []events.Sink, _ error) {
	if err := f.outside(g); err != nil {
		return nil, err
	}
	if f.Audit != "" {
		log, err := events.NewAuditor(f.Audit, g.place().Where(), g.Name, f.Job, r.Say)
		if err != nil {
			return nil, g.cantWrite("audit", f.Audit, err)
		}
		sinks = append(sinks, log)
	}
	if f.Metrics != "" {
		name, locks := f.named(g)
		metrics, err := events.NewMetrics(events.MetricsOptions{
			File: f.Metrics, Locks: locks, TTL: f.shortest(g),
			Labels: events.Labels{Repository: f.repository(g), Lock: name, Mode: mode, Operation: operation, Job: f.Job},
		}, r.Say)
		if err != nil {
			return nil, g.cantWrite("metrics-file", f.Metrics, err)
		}
		sinks = append(sinks, metrics)
	}
	return sinks, nil
}

// outside refuses files in a place of locks, before any file is written.
func (f lockFlags) outside(g global) error {
	if err := regular.Outside(f.Audit); err != nil {
		return g.cantWrite("audit", f.Audit, err)
	}
	if err := regular.Outside(f.Metrics); err != nil {
		return g.cantWrite("metrics-file", f.Metrics, err)
	}
	return nil
}

// cantWrite returns the error of a file that a flag names, for a command that wasn't run. Its class is
// that of the cause.
func (g global) cantWrite(flag, path string, err error) error {
	where, hint := "--"+flag, "correct the path, or leave out --"+flag
	switch from := g.Sources[flag]; {
	case from.Variable != "":
		where, hint = from.Variable, "correct the path, or unset "+from.Variable
	case from.File != "":
		where, hint = flag+" in "+from.File, "correct the configuration file"
	}
	if errors.Is(err, fs.ErrNotExist) && unexpanded(path) {
		hint = tildeHint
	}
	return fault.Advise(fault.New(fault.Early, "%s: %w", where, unusable(err)), hint)
}

// unusable adds its class to the error of a file to be written.
func unusable(err error) error {
	irregular, place := new(regular.Error), new(regular.PlaceError)
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.As(fault.Permission, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.As(err, &irregular), errors.As(err, &place):
		return fault.As(fault.Config, err)
	default:
		return err
	}
}

const tildeHint = "no shell has replaced the ~: write the path in full, or outside of quotes"

// unexpanded reports whether a path has a ~ that a shell would have replaced. The path can have been
// made absolute since.
func unexpanded(path string) bool {
	return strings.HasPrefix(path, "~") || strings.Contains(path, string(filepath.Separator)+"~")
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
		return errors.New("must be a time such as 90s, 15m or 2h, or forever")
	case d < 0:
		return errors.New("must not be negative")
	}
	*p = waitTime(d)
	return nil
}

// moment is --since or --until.
type moment time.Time

// UnmarshalText parses a time before now, a day, or a time of a day, in UTC.
func (m *moment) UnmarshalText(raw []byte) error {
	word := strings.TrimSpace(string(raw))
	for _, layout := range []string{time.RFC3339, time.DateTime + "Z07:00", time.DateTime, time.DateOnly} {
		if t, err := time.Parse(layout, word); err == nil {
			*m = moment(t)
			return nil
		}
	}
	ago, err := time.ParseDuration(word)
	if days, ok := strings.CutSuffix(word, "d"); ok {
		var n uint64
		n, err = strconv.ParseUint(days, 10, 16) // a Duration has 106751 days
		ago = time.Duration(n) * 24 * time.Hour
	}
	if err != nil || ago < 0 {
		return errors.New("must be a time ago such as 36h or 7d, a day such as 2026-03-07, or 2026-03-07T09:00:00Z")
	}
	*m = moment(clock.System{}.Now().Add(-ago))
	return nil
}
