package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/child"
	"github.com/repolock/repolock/replock"
)

// rehearsal is what --dry-run prints, in JSON. Fields are only ever added.
type rehearsal struct {
	WouldRun   []string `json:"would_run"`
	Mode       string   `json:"mode,omitempty"` // none: without a lock
	Operation  string   `json:"operation,omitempty"`
	LockName   string   `json:"lock_name,omitempty"`
	Available  bool     `json:"available"` // the lock is to be had now, or none is needed
	Suggestion string   `json:"suggestion"`
}

// rehearse does what --dry-run asks for: it runs nothing and writes nothing, because only the
// command itself knows how to run and change nothing. A lock that isn't to be had is the error
// that the command would get.
func (f lockFlags) rehearse(r *reporter, g global, mode replock.Mode, operation string, args []string) (int, error) {
	if _, err := child.LookPath(args); err != nil {
		return 0, err
	}
	out := rehearsal{WouldRun: args, Available: true, Suggestion: "for a command with a dry run of its own: repolock run --no-lock -- COMMAND"}
	if operation == "restore" { // what is read must not be pruned meanwhile
		out.Suggestion = "for a command with a dry run of its own: repolock restore -- COMMAND"
	}
	if mode == 0 || f.Hint == "node-local" || g.Repo == "" && f.Hint == "prefer-global" {
		return 0, out.print(r)
	}
	if err := replock.CheckOperation(operation); err != nil {
		return 0, usageError{err}
	}
	out.Mode, out.Operation, out.LockName = mode.String(), operation, lockName(g.Name)
	held, err := g.inTheWay(mode)
	if err != nil {
		return 0, err
	}
	out.Available = held == nil
	if err := out.print(r); err != nil || held == nil {
		return 0, err
	}
	_, nested := g.ownOuter(held.Holders)
	return f.without(r, args, notAcquired{error: heldError{held, f.HeldCode, nested, g.looked()}, reached: true})
}

// maxNamed is how many holders an error names.
const maxNamed = 16

// inTheWay returns the locks that a lock of this mode isn't to be had beside, or nil.
func (g global) inTheWay(mode replock.Mode) (*replock.HeldError, error) {
	l, err := g.locker(context.Background(), replock.Options{})
	if err != nil {
		return nil, err
	}
	holders, err := l.Status(context.Background())
	if err != nil {
		return nil, err
	}
	holders = slices.DeleteFunc(holders, func(i replock.Info) bool {
		return i.Verdict == replock.Stale || mode == replock.Shared && i.Mode == replock.Shared
	})
	if len(holders) == 0 {
		return nil, nil
	}
	n := min(len(holders), maxNamed)
	return &replock.HeldError{Mode: mode, Holders: holders[:n], More: len(holders) - n}, nil
}

func (o rehearsal) print(r *reporter) error {
	if r.JSON {
		return r.result(o)
	}
	var lock, found string
	switch o.Mode {
	case "":
		lock = "WITHOUT A LOCK"
	case replock.Shared.String():
		lock = "under a shared lock"
	default:
		lock = "under the exclusive lock"
	}
	if o.Mode != "" && o.Available {
		found = "the lock is to be had now\n"
	}
	_, err := fmt.Fprintf(r.stdout, "would run, %s: %s\n%snothing was run, and no lock was taken; %s\n", lock, escape(spell(o.WouldRun)), found, o.Suggestion)
	return err
}

var bareWord = regexp.MustCompile(`^[A-Za-z0-9_@%+=:,./-]+$`)

// spell writes a command as a shell reads it.
func spell(args []string) string {
	var words []string
	for _, a := range args {
		if !bareWord.MatchString(a) {
			a = quote(a)
		}
		words = append(words, a)
	}
	return strings.Join(words, " ")
}
