package main

import (
	"errors"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/keeper"
	"github.com/repolock/repolock/replock"
)

// tokenArg is the lock that is meant.
type tokenArg struct {
	Token string `arg:"" optional:"" env:"REPOLOCK_TOKEN" help:"What acquire printed; or REPOLOCK_TOKEN."`
}

// ask has its keeper do something, and returns what it holds.
func (t tokenArg) ask(do string) (holding, error) {
	if err := keeper.Supported(); err != nil {
		return holding{}, usageError{err}
	}
	if t.Token == "" {
		return holding{}, usageError{errors.New("no token: give the one that acquire printed, or set REPOLOCK_TOKEN")}
	}
	if err := keeper.CheckToken(t.Token); err != nil {
		return holding{}, usageError{err}
	}
	var a keeperAnswer
	asked := clock.System{}.Elapsed()
	if err := keeper.Ask(t.Token, do, &a, do == "release"); err != nil {
		return holding{}, err
	}
	if a.Failure != nil {
		return holding{}, keeperError{*a.Failure}
	}
	if do != "release" && a.over(asked, clock.System{}.Elapsed(), identity.Self().TimeNamespace) {
		return holding{}, fmt.Errorf("%w: its lease was over when the keeper's answer was read", replock.ErrLost)
	}
	return a.holding, nil
}

// hold asks for something after which the lock is held, and shows until when.
func (t tokenArg) hold(r *reporter, do string) error {
	h, err := t.ask(do)
	if err != nil {
		return err
	}
	if r.JSON {
		return r.result(h)
	}
	if !r.Quiet {
		_, err = fmt.Fprintf(r.stdout, "%s lock %s, operation %s, is held until %s unless refreshed (%v)\n", h.Mode, h.ID,
			replock.Printable(h.Operation), h.HeldUntil.Format(time.RFC3339), time.Duration(h.LeftSeconds*float64(time.Second)).Round(time.Second))
	}
	return err
}

type checkCmd struct{ tokenArg }

func (checkCmd) Help() string {
	return `Looks into the repository, so that a lock that somebody broke isn't taken for held. If the repository can't be reached the
lock is held for as long as its lease lasts. Exits with 79 if the lock was lost, and why, or if nobody holds it any more.`
}

func (c checkCmd) run(r *reporter, _ global) (int, error) { return 0, c.hold(r, "check") }

type renewCmd struct{ tokenArg }

func (renewCmd) Help() string {
	return `Locks are refreshed by themselves; this is for before what takes nearly as long as a lock lives and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`
}

func (c renewCmd) run(r *reporter, _ global) (int, error) { return 0, c.hold(r, "renew") }

type releaseCmd struct{ tokenArg }

func (releaseCmd) Help() string {
	return `Exits with 79 if the lock had been lost before, or there is none any more, since it was released already or its keeper was
killed: what was done under it may not have been protected. With 69 the lock couldn't be deleted and is left to expire.`
}

func (c releaseCmd) run(r *reporter, _ global) (int, error) {
	h, err := c.ask("release")
	if err == nil && r.JSON {
		err = r.result(h)
	}
	return 0, err
}
