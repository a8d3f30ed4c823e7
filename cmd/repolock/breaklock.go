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

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

// noLockError is returned when there is no lock with the given id.
type noLockError struct{ error }

type breakCmd struct {
	Yes   bool   `short:"y" help:"Don't ask."`
	Stale bool   `help:"Only locks that are certainly stale. If it asks, also locks that only one clock calls stale."`
	Dead  bool   `help:"Only locks of processes of this machine that are gone."`
	Audit string `predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append each deletion to this file, in JSON, one event a line."`
	ID    string `name:"id" help:"Only the lock with this id. It is an error if there is none."`

	Also []string `predictor:"lock" sep:"none" placeholder:"URL" help:"Break this lock too, or alone if no repository is given: ${also}. Repeatable. A tower-fleet lock is broken only if it is stale, or can't be read."`
}

func (c breakCmd) Help() string {
	return `Deletes the exclusive lock, every shared lock and every intent, of any age and holder. A holder that still
runs sees that at its next look, every 10s by default, and stops; until then it goes on. Break locks only when you are
certain that no operation is running.`
}

func (c breakCmd) run(r *reporter, g global) (int, error) {
	if !c.Yes && !isatty.IsTerminal(os.Stdin.Fd()) {
		return 0, usageError{errors.New("there is no terminal to ask on: give --yes to break locks")}
	}
	sinks, err := lockFlags{Audit: c.Audit}.sinks(r, g, 0, "")
	if err != nil {
		return 0, err
	}
	all, closeAll, err := g.systems(c.Also, also.Break)
	defer closeAll()
	if err != nil {
		return 0, err
	}
	opts := replock.BreakOptions{Stale: c.Stale, Doubtful: true, Dead: c.Dead, ID: c.ID, DryRun: true}
	found, err := everywhere(all, func(p placed) ([]replock.Broken, error) { return p.Break(context.Background(), opts) })
	if err != nil {
		return 0, err
	}
	if len(found) == 0 && c.ID != "" {
		return 0, noLockError{fmt.Errorf("there is no %slock with the id %.80q: nothing was deleted; %s", c.which(), c.ID, strings.ReplaceAll(strings.TrimSpace(looked(all)), "\n", ", "))}
	}
	if c.Stale && c.Yes && c.ID == "" {
		found = c.leave(r, found)
	}
	if len(found) == 0 {
		return 0, c.report(r, nil, looked(all))
	}
	opts.Shown = found
	if !c.Yes && !c.ask(r, found) {
		r.Say("nothing was deleted")
		return exitAborted, nil
	}
	opts.DryRun = false
	broken, err := everywhere(all, func(p placed) ([]replock.Broken, error) {
		broken, err := p.Break(context.Background(), opts)
		for _, b := range broken {
			for _, sink := range sinks {
				sink.Handle(c.event(b, p.Place))
			}
		}
		return broken, err
	})
	if rerr := c.report(r, broken, looked(all)); err == nil {
		err = rerr
	}
	return 0, err
}

// leave drops and prints the locks that only a person can judge.
func (breakCmd) leave(r *reporter, found []replock.Broken) []replock.Broken {
	return slices.DeleteFunc(found, func(b replock.Broken) bool {
		doubtful := b.Verdict == replock.Doubtful
		if doubtful {
			r.Say("left alone: %s; without --yes, or with --id, break-lock --stale deletes it", b.Info)
		}
		return doubtful
	})
}

// event returns the event of a broken lock for the audit log.
func (c breakCmd) event(b replock.Broken, p session.Place) events.Event {
	return events.Event{Place: p.URL, Reason: c.why(), Event: replock.Event{
		Kind: events.LockBroken, Time: clock.System{}.Now(), Name: p.Name, Key: b.Key(), Holders: []replock.Info{b.Info}, Err: b.Err,
	}}
}

// why returns the choice of locks for the audit log.
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

// which returns the choice of locks in words.
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

func (c breakCmd) ask(r *reporter, found []replock.Broken) bool {
	var infos []replock.Info
	for _, f := range found {
		infos = append(infos, f.Info)
	}
	fmt.Fprint(r.stderr, table(infos)+"Delete these locks? Only if you are certain that no operation is running. [y/N] ")
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

func (c breakCmd) report(r *reporter, broken []replock.Broken, looked string) error {
	out := struct {
		Broken []jsonLock `json:"broken"`
	}{Broken: []jsonLock{}}
	words := ""
	if len(broken) == 0 {
		words = "nothing to break\n" + looked
	}
	for _, b := range broken {
		j := newJSONLock(b.Info)
		if b.Err != nil {
			j.BreakFailure = text.Error(b.Err)
		} else {
			for _, key := range b.Keys {
				words += fmt.Sprintf("deleted %s: %s lock of %s, operation %s\n", text.Brief(key), b.Mode, text.Or(b.Holder, "-"), text.Or(b.Operation, "-"))
			}
		}
		out.Broken = append(out.Broken, j)
	}
	return r.result(out, words)
}
