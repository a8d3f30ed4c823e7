package main

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"syscall"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/internal/doctor"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
)

type doctorCmd struct {
	URL    string `predictor:"repository" arg:"" optional:"" name:"url" help:"Repository, if not that of --repo."`
	Also   string `predictor:"repository" placeholder:"URL" help:"Another way to the same repository, as through a second gateway: what is written through either must be listed through the other at once."`
	Prefix string `placeholder:"KEY" help:"Write the scratch objects below this, which must not be where locks are."`
}

func (doctorCmd) Help() string {
	return `Tries out, with some 1,000 requests, what the store does and what is allowed in it, and says what repolock will do there
and whether it is fit. Nobody's lock is touched: it writes below index/locks/doctor-TIME-ID/, where a lock of that name
would be, or with --name below index/locks/NAME/doctor-TIME-ID/, and deletes what it wrote. It may run at any time.

Exit codes: 0 the store is fit; 69 it can't be reached; 74 what was written is left there; 77 permissions are lacking; 78 it is unfit.`
}

func (c doctorCmd) run(r *reporter, g global) (int, error) {
	base, err := c.base(g.Name)
	if err != nil {
		return 0, usageError{err}
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer onSignal(cancel)()

	s, err := g.store(ctx)
	if err != nil {
		return 0, err
	}
	other, err := g.store(ctx)
	if err != nil {
		return 0, err
	}
	opts := doctor.Options{
		Prefix: base, Locks: lockPrefix(g.Name) + "lock.", Others: []store.Store{other}, Progress: func(what string) { r.live("doctor: " + what + "…") },
	}
	report, err := c.examine(ctx, g, s, opts)
	r.live("")
	if err != nil && !worthPrinting(report, err) {
		return 0, err
	}
	if perr := c.print(r, g, report); perr != nil {
		return 0, perr
	}
	return exitCode(report), err
}

// examine tries the store out, by both ways to it if there are two.
func (c doctorCmd) examine(ctx context.Context, g global, s store.Store, opts doctor.Options) (doctor.Report, error) {
	if c.Also == "" {
		return doctor.Run(ctx, s, opts)
	}
	g.Repo = c.Also
	also, err := g.store(ctx)
	if err != nil {
		return doctor.Report{}, fmt.Errorf("--also: %w", err)
	}
	return doctor.Both(ctx, s, also, opts)
}

// print says of two reports which is which.
func (c doctorCmd) print(r *reporter, g global, report doctor.Report) error {
	if report.Also == nil || r.JSON {
		return printReport(r, report, g.Repo)
	}
	other := g
	other.Repo = c.Also
	for _, way := range []struct {
		report   doctor.Report
		from, to global
	}{{report, g, other}, {*report.Also, other, g}} {
		if _, err := fmt.Fprintf(r.stdout, "written through %s, listed through %s too\n", escape(way.from.where()), escape(way.to.where())); err != nil {
			return err
		}
		if err := printReport(r, way.report, way.from.Repo); err != nil {
			return err
		}
	}
	return nil
}

// lockPrefix is where the lock of a name has its objects; "" is the default one.
func lockPrefix(name string) string {
	if name == "" {
		return replock.DefaultPrefix
	}
	return replock.DefaultPrefix + "locks/" + name + "/"
}

// base is what the scratch prefix is put below. An element "lock.shared" or the
// like would make locks of what is written there.
func (c doctorCmd) base(name string) (string, error) {
	if name != "" {
		if err := replock.CheckName(name); err != nil {
			return "", err
		}
	}
	if c.Prefix == "" {
		if name == "" {
			return replock.DefaultPrefix + "locks/", nil
		}
		return lockPrefix(name), nil
	}
	base := strings.TrimSuffix(c.Prefix, "/")
	if err := store.CheckKey(base); err != nil || path.Clean(base) != base {
		return "", fmt.Errorf("--prefix %q: it can't be the beginning of a key", c.Prefix)
	}
	for element := range strings.SplitSeq(base, "/") {
		if strings.HasPrefix(element, "lock.") {
			return "", fmt.Errorf("--prefix %q: what is written there would be taken for locks", c.Prefix)
		}
	}
	return base + "/", nil
}

// onSignal ends the context at the first signal, so that what was written is
// deleted; a second one ends the process.
func onSignal(cancel context.CancelCauseFunc) (stop func()) {
	signals, stop := child.Signals()
	go func() {
		for sig := range signals {
			if ends(sig) {
				stop()
				cancel(signalled{sig.(syscall.Signal)})
				return
			}
		}
	}()
	return stop
}

// worthPrinting tells whether what was found before an error is of use.
func worthPrinting(report doctor.Report, err error) bool {
	reached, _ := report.Check(doctor.Reachable)
	interrupted := errors.As(err, new(signalled))
	return len(report.Left) > 0 || reached.Result == doctor.OK && !interrupted
}

func exitCode(report doctor.Report) int {
	switch report.Fitness() {
	case doctor.Fit:
		return 0
	case doctor.LacksPermission:
		return exitPermission
	default:
		return exitUnfit
	}
}
