package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/mattn/go-isatty"

	"github.com/repolock/repolock/replock"
)

type breakCmd struct {
	Yes   bool   `short:"y" help:"Don't ask."`
	Stale bool   `help:"Only locks that are certainly stale."`
	Dead  bool   `help:"Only locks whose holder was a process of this machine that is gone."`
	Audit string `predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append what is deleted to this file, in JSON, one event a line."`
	ID    string `name:"id" help:"Only the lock with this id."`
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
	opts := replock.BreakOptions{Stale: c.Stale, Dead: c.Dead, ID: c.ID, DryRun: true}
	found, err := l.Break(ctx, opts)
	if err != nil {
		return 0, err
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
		_, err := fmt.Fprintln(r.stdout, "nothing to break")
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
