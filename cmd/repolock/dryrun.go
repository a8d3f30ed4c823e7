package main

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking/towerfleet"
	"github.com/repolock/repolock/replock"
)

// dryRun is what --dry-run prints, in JSON. Fields are only ever added.
type dryRun struct {
	WouldRun   []string `json:"would_run"`
	Mode       string   `json:"mode,omitempty"` // empty: without a lock
	Operation  string   `json:"operation,omitempty"`
	LockName   string   `json:"lock_name,omitempty"`
	Available  bool     `json:"available"` // the lock is free now, or none is needed
	Suggestion string   `json:"suggestion"`
}

// dryRun does what --dry-run says: it runs nothing and writes nothing, because only the
// command itself knows how to run and change nothing. It returns the error that the command
// would get if another holder has the lock.
func (f commandFlags) dryRun(r *reporter, p plan, args []string) (int, error) {
	if _, err := procgroup.LookPath(args); err != nil {
		return 0, err
	}
	out := dryRun{WouldRun: args, Available: true, Suggestion: "for a command with a dry run of its own: repolock run --no-lock -- COMMAND"}
	if p.operation == "restore" { // a prune must not delete what a restore reads
		out.Suggestion = "for a command with a dry run of its own: repolock restore -- COMMAND"
	}
	if none, _ := session.Policy(f.policyFlags).NeedsNone(p.Repo != "" || len(f.Also) > 0); none || p.mode == 0 {
		return 0, out.print(r)
	}
	if err := replock.CheckOperation(p.operation); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	out.Mode, out.Operation = p.mode.String(), p.operation
	out.LockName, _ = p.named()
	wait := r.looking(&p.global)
	wait.BeginWait("reading the locks: " + session.Titles(p.places))
	held, at, err := p.inTheWay()
	wait.EndWait()
	if err != nil {
		return 0, err
	}
	out.Available = held == nil
	if err := out.print(r); err != nil || held == nil {
		return 0, err
	}
	return f.without(r, args, session.NotAcquired(session.NewHeldError(held, at, f.HeldCode), true))
}

// maxNamed is the number of holders that an error names.
const maxNamed = 16

// inTheWay returns the locks that conflict with the lock of a plan, or nil, and their place.
// It looks no further when it has found some.
func (p plan) inTheWay() (*replock.HeldError, session.Place, error) {
	all, closeAll, err := p.systems(p.Also, also.Look)
	defer closeAll()
	if err != nil {
		return nil, session.Place{}, err
	}
	for _, one := range all {
		holders, err := one.Status(context.Background())
		if err != nil {
			return nil, one.Place, err
		}
		holders = slices.DeleteFunc(holders, func(i replock.Info) bool {
			return i.Verdict == replock.Stale && (p.ForceLock || passed(one.Place)) || p.mode == replock.Shared && i.Mode == replock.Shared
		})
		if n := min(len(holders), maxNamed); n > 0 {
			return &replock.HeldError{Mode: p.mode, Holders: holders[:n], More: len(holders) - n}, one.Place, nil
		}
	}
	return nil, session.Place{}, nil
}

// passed reports whether an acquirer passes a stale lock. One of tower-fleet stays, unless
// --force-lock steals it.
func passed(p session.Place) bool { return !strings.HasPrefix(p.URL, towerfleet.Scheme+":") }

func (o dryRun) print(r *reporter) error {
	lock := map[string]string{"": "WITHOUT A LOCK", "shared": "under a shared lock", "exclusive": "under the exclusive lock"}[o.Mode]
	found := ""
	if o.Mode != "" && o.Available {
		found = "the lock is to be had now\n"
	}
	last := hanging("nothing was run, and no lock was taken; "+o.Suggestion, terminalWidth(os.Stdout))
	return r.result(o, fmt.Sprintf("would run, %s: %s\n%s%s\n", lock, text.Escape(spell(o.WouldRun)), found, last))
}

var bareWord = lazyregexp.New(`^[A-Za-z0-9_@%+=:,./-]+$`)

func spell(args []string) string {
	var words []string
	for _, a := range args {
		if !bareWord.MatchString(a) {
			a = text.Quote(a)
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
