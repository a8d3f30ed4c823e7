package main

import (
	"cmp"
	"errors"
	"io/fs"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unicode/utf8"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
)

// lockFlags are the flags of all commands that acquire a lock.
type lockFlags struct {
	TTL       time.Duration     `brief:"How long the lock outlives a crash" config:"" default:"60s" help:"How long the lock outlives a crash: 10s to 24h, ${default} by default, and 15m for a lock of tower-fleet."`
	Look      time.Duration     `rare:"" brief:"How often to look whether the lock is there" config:"" default:"10s" help:"How often to look whether the lock is still there: 1s to the ttl, ${default} by default. If the lock was broken, or another holder got it while a hypervisor paused this machine, the command runs on for this time at most. A look is one list request."`
	Wait      cli.WaitTime      `brief:"Wait while the lock is held" config:"" default:"0s" placeholder:"TIME|forever" help:"How long to wait for the lock while it is held. A waiter for the exclusive lock comes before all later acquirers."`
	HeldCode  int               `rare:"" brief:"Exit code when the lock is held (75)" config:"" name:"held-exit-code" short:"E" default:"75" placeholder:"N" help:"Exit code when the lock is held, ${default} by default."`
	Metadata  map[string]string `rare:"" brief:"Put this into the lock, for others to read" config:"" placeholder:"KEY=VALUE" help:"Put this into the lock for others to read. No secrets."`
	Audit     string            `once:"" rare:"" brief:"Append the lock's events to this file, as JSON" predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append the lock's events to this file, in JSON, one a line."`
	Metrics   string            `once:"" rare:"" brief:"Write the lock's state, for Prometheus" predictor:"file" config:"" name:"metrics-file" placeholder:"FILE" help:"Write the state of the lock to this file, for Prometheus (the textfile collector of node_exporter)."`
	Job       string            `rare:"" brief:"Name the job, in the audit log and the metrics" placeholder:"NAME" env:"REPOLOCK_JOB" help:"Name of the job in the audit log and the metrics (label job_name). It distinguishes jobs of one operation on one repository."`
	Fence     bool              `rare:"" brief:"Take a fencing token (REPOLOCK_FENCE)" help:"Take a fencing token with an exclusive lock (REPOLOCK_FENCE)."`
	Also      []string          `brief:"Hold another system's lock, too" predictor:"lock" sep:"none" placeholder:"URL" help:"Hold this lock too, or it alone if no repository is given: ${also}. Repeatable: all locks are held, or none. docs/also.md"`
	Settle    time.Duration     `rare:"" brief:"Wait before the command starts (--also)" default:"0s" help:"With --also: how long to wait between the acquire of all locks and the start of the command, so that work that began without looking at them can end. If a lock is lost meanwhile, the command doesn't start."`
	Beside    string            `rare:"" brief:"Which other programs take the repository's own lock" config:"" enum:",cloudstic,nobody" default:"" placeholder:"cloudstic|nobody" help:"Which other programs take the repository's own lock. With cloudstic an acquire takes two round trips more, so that a Cloudstic command that began before can't run beside the lock; with nobody it takes no extra round trip. By default repolock finds out whether the repository is Cloudstic's, and remembers it for a week."`
	ForceLock bool              `rare:"" brief:"Steal a stale lock of tower-fleet" help:"With --also tower-fleet:DIR/NAME: steal the lock if it is stale. A live lock is never stolen."`

	// The holder's fields of a tower-fleet lock.
	RequestID     string `rare:"" brief:"Name the execution in a lock of tower-fleet" name:"request-id" placeholder:"ID" help:"With --also tower-fleet:DIR/NAME: the request_id of this execution, 1 to 128 letters, digits, dots, underscores, colons and hyphens, beginning with a letter or digit. Two executions must not have the same one. By default it is random."`
	Actor         string `rare:"" brief:"Name the actor in a lock of tower-fleet" placeholder:"NAME" help:"With --also tower-fleet:DIR/NAME: the actor in the lock, by default the user."`
	IntentVersion string `rare:"" brief:"Give the version in a lock of tower-fleet" name:"intent-version" placeholder:"VERSION" help:"With --also tower-fleet:DIR/NAME: the intent_version in the lock, by default repolock's version. The intent is --operation."`
}

func (f lockFlags) check() error {
	switch {
	case f.TTL < replock.MinTTL || f.TTL > replock.MaxTTL:
		return cli.WrongFlag("ttl", show.FlagDuration(f.TTL), "must be from %s to %s", show.FlagDuration(replock.MinTTL), show.FlagDuration(replock.MaxTTL))
	case f.Look < replock.MinLook || f.Look > f.TTL:
		return cli.WrongFlag("look", show.FlagDuration(f.Look), "must be from %s to the ttl, %s", show.FlagDuration(replock.MinLook), show.FlagDuration(f.TTL))
	case f.Settle < 0:
		return cli.WrongFlag("settle", f.Settle.String(), "must not be negative")
	case len(f.Job) > maxJob || !utf8.ValidString(f.Job):
		return cli.WrongFlag("job", strconv.Quote(text.Brief(f.Job)), "must have at most %d bytes, of UTF-8", maxJob)
	case f.HeldCode < 0 || f.HeldCode > 255:
		return cli.WrongFlag("held-exit-code", strconv.Itoa(f.HeldCode), "must be from 0 to 255")
	case f.RequestID != "" && towerfleet.CheckRequest(f.RequestID) != nil:
		return cli.WrongFlag("request-id", strconv.Quote(text.Brief(f.RequestID)), "must have 1 to 128 letters, digits, dots, underscores, colons and hyphens, with a letter or digit first")
	case text.Escape(f.Actor) != f.Actor || len(f.Actor) > maxJob:
		return cli.WrongFlag("actor", strconv.Quote(text.Brief(f.Actor)), "must have at most %d bytes, of printable characters", maxJob)
	case text.Escape(f.IntentVersion) != f.IntentVersion || len(f.IntentVersion) > maxJob:
		return cli.WrongFlag("intent-version", strconv.Quote(text.Brief(f.IntentVersion)), "must have at most %d bytes, of printable characters", maxJob)
	case sameFile(f.Audit, f.Metrics):
		return cli.WrongFlag("metrics-file", "", "would replace the file of --audit: name another file")
	}
	return nil
}

// sameFile reports whether both paths name one file. An empty path names none.
func sameFile(a, b string) bool { return a != "" && b != "" && regular.Same(a, b) }

// maxJob is the largest length of --job in bytes, the same as for an operation.
const maxJob = 256

// plan describes the locks that a command line asks for: the repository's, the locks of --also, or both.
type plan struct {
	lockFlags
	global
	mode      replock.Mode
	operation string
	targets   []also.Target   // of --also
	alone     bool            // there is no repository's lock
	places    []session.Place // of all locks, the repository's first
	oncePer   time.Duration   // --once-per, or 0
}

// plan returns the plan of a command line. It refuses a flag that needs --also or a repository if the command line
// has none.
func (f lockFlags) plan(g global, mode replock.Mode, operation string) (plan, error) {
	targets, err := also.Parse(f.Also)
	p := plan{lockFlags: f, global: g, mode: mode, operation: operation, targets: targets, alone: g.alone(targets)}
	if !p.alone {
		p.places = append(p.places, g.place())
	}
	for _, t := range targets {
		p.places = append(p.places, t.Place)
	}
	fleet := slices.ContainsFunc(p.places, isFleet)
	switch {
	case err != nil:
		return p, err
	case len(targets) == 0 && f.Settle > 0:
		return p, fault.New(fault.Usage, "--settle: works only with --also")
	case len(targets) == 0 && f.ForceLock:
		return p, fault.New(fault.Usage, "--force-lock: works only with --also tower-fleet:DIR/NAME; break-lock removes a repository's locks")
	case p.alone && f.Beside != "" && g.Sources["beside"].File == "":
		return p, fault.New(fault.Usage, "--beside: says who takes a repository's own lock, and no repository is given")
	case !p.alone && slices.ContainsFunc(targets, func(t also.Target) bool { return t.Is(g.place()) }):
		return p, fault.New(fault.Usage, "--also: names the same lock as --repo and --name: it is named twice")
	case f.ForceLock && !fleet:
		return p, fault.New(fault.Usage, "--force-lock: works only with --also tower-fleet:DIR/NAME")
	case f.fleetFlag() != "" && !fleet:
		return p, fault.New(fault.Usage, "--%s: works only with --also tower-fleet:DIR/NAME", f.fleetFlag())
	case f.Metadata[towerfleet.HandleField] != "" && fleet:
		return p, fault.New(fault.Usage, "--metadata "+towerfleet.HandleField+": repolock writes this field itself into a tower-fleet lock: name another")
	case f.Fence && mode == replock.Shared && !p.alone:
		return p, fault.New(fault.Usage, "--fence: only the exclusive lock has fencing tokens")
	case p.alone && f.Fence:
		return p, fault.New(fault.Usage, "--fence: only a repository's lock has fencing tokens")
	case p.alone && g.Name != "":
		return p, fault.New(fault.Usage, "--name: names a lock of a repository, and no repository is given")
	}
	return p, nil
}

// fleetFlag returns the name of a flag that only a tower-fleet lock has, or "" if none is set.
func (f lockFlags) fleetFlag() string {
	switch {
	case f.RequestID != "":
		return "request-id"
	case f.Actor != "":
		return "actor"
	case f.IntentVersion != "":
		return "intent-version"
	default:
		return ""
	}
}

// request returns the request for the locks. Its console is r.
func (p plan) request(r *show.Reporter) session.Request {
	request := session.Request{TTL: p.shortest(), HeldCode: p.HeldCode, Console: r, Located: r.Flags.Located, Sinks: func() ([]events.Sink, error) { return p.sinks(r) }}
	repository := func(g global) *session.Repository {
		return &session.Repository{
			Open: g.store, New: g.lockerOn, Mode: p.mode, Operation: p.operation, Wait: time.Duration(p.Wait), Fence: p.Fence,
			Options:  replock.Options{TTL: p.TTL, Look: p.Look, Metadata: p.Metadata},
			Remember: session.NewMemory(g.place()),
		}
	}
	var first *session.Repository
	if !p.alone {
		request.Place, first = p.place(), repository(p.global)
		first.Options.Beside, _ = replock.ParseBeside(p.Beside) // of the repository alone: --also can name others
	}
	if p.oncePer > 0 {
		request.Once = &session.Once{Repository: first, Place: p.place(), Job: p.Job, Period: p.oncePer}
	}
	if len(p.targets) == 0 {
		request.Locker = first
		return request
	}
	request.Others = p.places[len(p.places)-len(p.targets):]
	ask := p.also()
	ask.Repository = func(at session.Place) *session.Repository { return repository(p.at(at)) }
	request.Locker = also.NewSet(first, p.targets, ask)
	return request
}

func (p plan) also() also.Request {
	return also.Request{
		Settle: p.Settle, Operation: p.operation, Version: newBuild().Version, Force: p.ForceLock, Metadata: p.Metadata,
		RequestID: p.RequestID, Actor: p.Actor, IntentVersion: p.IntentVersion,
		TTL: p.TTL, DefaultTTL: p.IsDefault("ttl"), Look: p.Look, Wait: time.Duration(p.Wait),
	}
}

// shortest returns the ttl of the lock that expires first.
func (p plan) shortest() time.Duration {
	if !p.alone {
		return p.TTL
	}
	ttl := func(t also.Target) time.Duration { return t.TTL(p.also()) }
	return ttl(slices.MinFunc(p.targets, func(a, b also.Target) int { return cmp.Compare(ttl(a), ttl(b)) }))
}

// named returns the names and the places of the locks, as the metrics and a dry run show them. All spellings of one
// repository have one place, and so one series of metrics.
func (p plan) named() (name, where string) {
	if !p.alone {
		return events.LockName(p.Name), p.place().Repository()
	}
	var names, urls []string
	for _, at := range p.places {
		names, urls = append(names, at.Name), append(urls, at.URL)
	}
	return strings.Join(names, ","), strings.Join(urls, ",")
}

// sinks opens the files of --audit and --metrics-file.
func (p plan) sinks(r *show.Reporter) (sinks []events.Sink, _ error) {
	if p.Audit != "" {
		log, err := events.NewAuditor(p.Audit, p.place().Where(), p.Name, p.Job, r.Say)
		if err != nil {
			return nil, p.cantWrite("audit", p.Audit, err)
		}
		sinks = append(sinks, log)
	}
	if p.Metrics != "" {
		name, where := p.named()
		metrics, err := events.NewMetrics(events.MetricsOptions{
			File: p.Metrics, Locks: len(p.places), TTL: p.shortest(),
			Repository: where, Lock: name, Mode: p.mode, Operation: p.operation, Job: p.Job, OncePer: p.oncePer,
		}, r.Say)
		if err != nil {
			return nil, p.cantWrite("metrics-file", p.Metrics, err)
		}
		sinks = append(sinks, metrics)
	}
	return sinks, nil
}

// cantWrite returns the error for a file that can't be written, and reports that nothing was begun. The error names
// the flag, the variable or the configuration file that has the file's path.
func (g global) cantWrite(flag, path string, err error) error {
	where, hint := "--"+flag, "correct the path, or leave out --"+flag
	switch from := g.Sources[flag]; {
	case from.Variable != "":
		where, hint = from.Variable, "correct the path, or unset "+from.Variable
	case from.File != "":
		where, hint = flag+" in "+from.File, "correct the configuration file"
	}
	if errors.Is(err, fs.ErrNotExist) {
		hint = cmp.Or(cli.Unexpanded(path), hint)
	}
	return fault.Advise(fault.New(fault.Early, "%s: %w", where, unusable(err)), hint)
}

// unusable adds the class to the error of a file that can't be written.
func unusable(err error) error {
	switch {
	case errors.Is(err, fs.ErrPermission), errors.Is(err, syscall.EROFS):
		return fault.As(fault.Permission, err)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.EISDIR), errors.Is(err, regular.ErrRefused):
		return fault.As(fault.Config, err)
	default:
		return err
	}
}

// newSurvey returns nil if there is no repository to survey, or no line may be printed.
func newSurvey(r *show.Reporter, g global) *session.Survey {
	if r.Quiet || r.JSON || g.Repo == "" || g.Unknown != nil || g.onlyLocks {
		return nil
	}
	return session.NewSurvey(g.place(), cmp.Or(g.by, g.namedBy(), "--repo"), g.store, r.Say)
}
