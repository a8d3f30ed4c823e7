package main

import (
	"fmt"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/daemon"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/identity"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// tokenArg names a lock that acquire has acquired.
type tokenArg struct {
	Token string `arg:"" optional:"" env:"REPOLOCK_TOKEN" help:"The token that acquire printed. The default is REPOLOCK_TOKEN."`
}

// ask sends the keeper a request, and returns the lock that it holds.
func (t tokenArg) ask(r *reporter, do string) (session.Holding, error) {
	if err := daemon.Supported(); err != nil {
		return session.Holding{}, fault.As(fault.Usage, err)
	}
	if t.Token == "" {
		return session.Holding{}, fault.New(fault.Usage, "no token: give the one that acquire printed, or set REPOLOCK_TOKEN")
	}
	if err := daemon.CheckToken(t.Token); err != nil {
		return session.Holding{}, fault.As(fault.Usage, err)
	}
	var a session.Answer
	asked := clock.System{}.Elapsed()
	wait := newConsole(r)
	wait.BeginWait("asking the keeper of the lock")
	defer wait.EndWait()
	if err := daemon.Ask(t.Token, do, &a, do == "release"); err != nil {
		return session.Holding{}, err
	}
	if a.Failure != nil {
		return session.Holding{}, newKeeperError(*a.Failure)
	}
	if do != "release" && a.Over(asked, clock.System{}.Elapsed(), identity.Self().TimeNamespace) {
		return session.Holding{}, fmt.Errorf("%w: its lease was over when the keeper's answer was read", replock.ErrLost)
	}
	return a.Holding, nil
}

// askAndShow sends a request that leaves the lock held, and prints until when it is.
func (t tokenArg) askAndShow(r *reporter, do string) error {
	h, err := t.ask(r, do)
	if err != nil {
		return err
	}
	if h.Unseen != "" && !r.JSON {
		r.Alert("unseen", fmt.Sprintf("the repository could not be looked into: %s; the lock is held for %s, and then lost unless it can be refreshed", h.Unseen, text.Duration(h.Left())))
	}
	words := ""
	if !r.Quiet {
		words = fmt.Sprintf("%s lock %s, operation %s, is held until %s unless refreshed (%v)\n", h.Mode, h.ID,
			text.Brief(h.Operation), h.HeldUntil.Format(time.RFC3339), h.Left().Round(time.Second))
	}
	return r.result(h, words)
}

type checkCmd struct{ tokenArg }

func (checkCmd) Help() string {
	return `Looks into the repository, and so notices that the lock was broken. If the repository can't be reached, the lock is held as
long as its lease lasts, and a warning says so. Exits with 79 if the lock was lost, and prints why, or if its keeper is gone.`
}

func (c checkCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "check") }

type renewCmd struct{ tokenArg }

func (renewCmd) Help() string {
	return `The keeper refreshes its lock by itself. Renew before a step that takes nearly as long as the ttl and can't be interrupted.
Exits with 79 as check does, and with 69 if the lock is held and couldn't be refreshed.`
}

func (c renewCmd) run(r *reporter, _ global) (int, error) { return 0, c.askAndShow(r, "renew") }

type releaseCmd struct{ tokenArg }

func (releaseCmd) Help() string {
	return `Exits with 79 if the lock was lost before, or if it is gone because it was released already or its keeper was killed: the
work under it might not have been protected. Exits with 69 if the lock couldn't be deleted and is left to expire.`
}

func (c releaseCmd) run(r *reporter, _ global) (int, error) {
	h, err := c.ask(r, "release")
	if err != nil {
		return 0, err
	}
	return 0, r.result(h, "")
}
