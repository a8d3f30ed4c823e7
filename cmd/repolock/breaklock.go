package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/repolock/repolock/replock"
)

// noLockError: the lock to be broken isn't there.
type noLockError struct{ error }

type breakCmd struct {
	Yes   bool   `short:"y" help:"Don't ask."`
	Stale bool   `help:"Only locks that are certainly stale; if it asks, those too of which only one clock says so."`
	Dead  bool   `help:"Only locks whose holder was a process of this machine that is gone."`
	Audit string `predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append what is deleted to this file, in JSON, one event a line."`
	ID    string `name:"id" help:"Only the lock with this id. One that isn't there is an error."`
}

func (c breakCmd) Help() string {
	return `Deletes the exclusive lock, every shared lock and every intent, whatever their age and holder. A holder that still
runs finds out at its next look at the latest, each 10s by default, and stops; until then it doesn't know. Only do it when you are certain
that no operation is running.`
}

func (c breakCmd) run(r *reporter, g global) (int, error) {
	if !c.Yes && !isatty.IsTerminal(os.Stdin.Fd()) {
		return 0, usageError{errors.New("there is no terminal to ask on: give --yes to break locks")}
	}
	log, err := newAuditor(r, g, c.Audit)
	if err != nil {
		return 0, err
	}
	ctx := context.Background()
	l, err := g.locker(ctx, replock.Options{})
	if err != nil {
		return 0, err
	}
	opts := replock.BreakOptions{Stale: c.Stale, Doubtful: true, Dead: c.Dead, ID: c.ID, DryRun: true}
	found, err := l.Break(ctx, opts)
	if err != nil {
		return 0, err
	}
	if len(found) == 0 && c.ID != "" {
		return 0, noLockError{fmt.Errorf("there is no %slock with the id %.80q: nothing was deleted; %s", c.which(), c.ID, g.looked())}
	}
	if c.Stale && c.Yes && c.ID == "" {
		found = c.leave(r, found)
	}
	if len(found) == 0 {
		return 0, c.report(r, nil)
	}
	opts.Shown = found
	if !c.Yes && !c.ask(r, found) {
		r.say("nothing was deleted")
		return exitAborted, nil
	}
	opts.DryRun = false
	broken, err := l.Break(ctx, opts)
	for _, b := range broken {
		log.broken(b, c.why())
	}
	if rerr := c.report(r, broken); err == nil {
		err = rerr
	}
	return 0, err
}

// leave drops the locks that only a person can judge, and tells of them.
func (breakCmd) leave(r *reporter, found []replock.Broken) []replock.Broken {
	return slices.DeleteFunc(found, func(b replock.Broken) bool {
		doubtful := b.Verdict == replock.Doubtful
		if doubtful {
			r.say("left alone: %s; without --yes, or with --id, break-lock --stale deletes it", b.Info)
		}
		return doubtful
	})
}

// why is how the locks were chosen.
func (c breakCmd) why() string {
	switch {
	case c.Dead:
		return "break_lock_dead"
	case c.Stale:
		return "break_lock_stale"
	default:
		return "break_lock"
	}
}

// which restricts the locks, in words.
func (c breakCmd) which() string {
	words := ""
	if c.Stale {
		words = "stale "
	}
	if c.Dead {
		words += "dead "
	}
	return words
}

// ask lists what will be deleted.
func (c breakCmd) ask(r *reporter, found []replock.Broken) bool {
	var infos []replock.Info
	for _, f := range found {
		infos = append(infos, f.Info)
	}
	_ = table(r.stderr, infos)
	fmt.Fprint(r.stderr, "Delete these locks? Only if you are certain that no operation is running. [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	switch strings.ToLower(strings.TrimSpace(answer)) {
	case "y", "yes":
		return true
	default:
		return false
	}
}

func (c breakCmd) report(r *reporter, broken []replock.Broken) error {
	if r.JSON {
		out := struct {
			Broken []jsonLock `json:"broken"`
		}{Broken: []jsonLock{}}
		for _, b := range broken {
			j := newJSONLock(b.Info)
			if b.Err != nil {
				j.BreakFailure = oneLine(b.Err)
			}
			out.Broken = append(out.Broken, j)
		}
		return r.result(out)
	}
	if len(broken) == 0 {
		_, err := fmt.Fprintf(r.stdout, "nothing to break\n%s\n", escape(r.looked()))
		return err
	}
	for _, b := range broken {
		if b.Err != nil {
			continue // the error tells it
		}
		for _, key := range b.Keys {
			if _, err := fmt.Fprintf(r.stdout, "deleted %s: %s lock of %s, operation %s\n", replock.Printable(key), b.Mode,
				dash(b.Holder), dash(b.Operation)); err != nil {
				return err
			}
		}
	}
	return nil
}
