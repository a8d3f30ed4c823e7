package main

import (
	"bufio"
	"cmp"
	"context"
	"fmt"
	"os"
	"path"
	"slices"
	"strings"

	"golang.org/x/term"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/cmd/internal/cli"
	"github.com/repolock/repolock/cmd/internal/events"
	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

type breakCmd struct {
	Yes   bool   `short:"y" help:"Don't ask."`
	Stale bool   `help:"Only locks that are certainly stale. Without --yes also locks that only one clock calls stale."`
	Dead  bool   `help:"Only locks of processes of this machine that are gone."`
	Audit string `once:"" predictor:"file" config:"" placeholder:"FILE" env:"REPOLOCK_AUDIT" help:"Append each deletion to this file, in JSON, one event a line."`
	ID    string `once:"" placeholder:"ID" name:"id" help:"Only the lock with this id, which can be abbreviated to its first 4 characters or more. It is an error if there is no such lock, or if several ids begin with it."`

	Also []string `predictor:"lock" sep:"none" placeholder:"URL" help:"Break this lock too, or it alone if no repository is given: ${also}. Repeatable. A tower-fleet lock is broken only if it is stale, or can't be read."`

	after
}

func (c breakCmd) run(r *show.Reporter, g global) (int, error) {
	if c.Stale && c.Dead {
		return 0, fault.New(fault.Usage, "--stale and --dead can't be used together, because few locks are both: give one, and then the other")
	}
	g, err := c.locate(r, g)
	if err != nil {
		return 0, err
	}
	if !c.Yes && !term.IsTerminal(int(os.Stdin.Fd())) {
		return 0, fault.New(fault.Usage, "stdin is no terminal, so break-lock can't ask: give --yes to break locks")
	}
	sinks, err := plan{lockFlags: lockFlags{Audit: c.Audit}, global: g}.sinks(r)
	if err != nil {
		return 0, err
	}
	g.observe = r.Event
	all, closeAll, err := g.systems(c.Also, also.Break)
	defer closeAll()
	if err != nil {
		return 0, err
	}
	return c.breakIn(r, all, sinks)
}

// breakIn breaks the chosen locks of all systems. If a system fails, it still breaks the locks of the others, except
// with --id.
func (c breakCmd) breakIn(r *show.Reporter, all []placed, sinks []events.Sink) (int, error) {
	wanted := c.ID
	c.ID = "" // Break compares whole ids, but --id can be abbreviated
	chosen, answered, err := everywhere(r, "reading the locks", all, func(p placed) ([]replock.Broken, error) { return p.Break(context.Background(), c.options(true, nil)) })
	if len(answered) == 0 {
		return 0, err
	}
	if c.ID = wanted; c.ID != "" {
		chosen = withID(chosen, c.ID)
		if err := c.one(r, chosen, all, err); err != nil {
			return 0, err
		}
		c.ID = chosen[0].ID
	}
	if c.Stale && c.Yes && c.ID == "" {
		chosen = c.leave(r, chosen)
	}
	if (c.Stale || c.Dead) && c.ID == "" {
		c.spare(r, answered)
	}
	if len(chosen) == 0 {
		return 0, cmp.Or(c.report(r, nil, looked(answered, r.Verbose)), err)
	}
	if c.Yes {
		for _, line := range kills(chosen) {
			r.Say("%s", line)
		}
	} else if !c.ask(r, chosen) {
		if err == nil && r.JSON {
			return 0, fault.Declined
		}
		r.Say("nothing was deleted")
		return fault.ExitAborted, err
	}
	done, _, failed := everywhere(r, "deleting the locks", all, func(p placed) ([]replock.Broken, error) {
		shown := of(chosen, p)
		if len(shown) == 0 { // for Break, nil means all locks
			return nil, nil
		}
		broken, err := p.Break(context.Background(), c.options(false, shown))
		for _, b := range broken {
			for _, sink := range sinks {
				sink.Handle(c.event(b, p.Place))
			}
		}
		return broken, err
	})
	err = fault.Join(err, failed)
	return 0, cmp.Or(err, c.report(r, done, looked(answered, r.Verbose)))
}

func (c breakCmd) options(dry bool, shown []replock.Broken) replock.BreakOptions {
	return replock.BreakOptions{Stale: c.Stale, Doubtful: true, Dead: c.Dead, ID: c.ID, DryRun: dry, Only: shown}
}

// of returns the chosen locks of one place.
func of(chosen []found, at placed) (locks []replock.Broken) {
	for _, b := range chosen {
		if b.at.Place == at.Place {
			locks = append(locks, *b.Broken)
		}
	}
	return locks
}

// withID returns the locks with this id, or else the locks whose id begins with it.
func withID(chosen []found, id string) (named []found) {
	for _, same := range []func(string) bool{
		func(s string) bool { return s == id },
		func(s string) bool { return len(id) >= cli.LeastID && strings.HasPrefix(s, id) },
	} {
		for _, b := range chosen {
			if same(b.ID) {
				named = append(named, b)
			}
		}
		if len(named) > 0 {
			break
		}
	}
	return named
}

// one returns an error unless --id chooses one lock. All systems must have answered, because locks of several
// systems can have the same id.
func (c breakCmd) one(r *show.Reporter, chosen []found, all []placed, failed error) error {
	var names []string
	for _, b := range chosen {
		names = append(names, fmt.Sprintf("%s: %s", b.Place, show.Holder(b.Info, 0)))
	}
	switch {
	case failed != nil:
		return fault.Errorf("nothing was deleted, because a lock that can't be read now might also have the id %.80q: %w", c.ID, failed)
	case len(chosen) == 0 && len(c.ID) < cli.LeastID:
		return fault.New(fault.Usage, "--id %q: too short: give at least %d characters of the id", c.ID, cli.LeastID)
	case len(chosen) == 0:
		err := fault.New(fault.NoSuchLock, "there is no %slock with the id %.80q: nothing was deleted; %s", c.which(), c.ID, strings.ReplaceAll(strings.TrimSpace(looked(all, true)), "\n", ", "))
		if len(all) == 1 {
			err = fault.Advise(err, all[0].advice(r, fault.NoSuchLock.Advice))
		}
		return err
	case slices.ContainsFunc(chosen, func(b found) bool { return b.ID != chosen[0].ID }):
		return fault.New(fault.Usage, "--id %.80q: %d ids begin with it: nothing was deleted; give more of the id", c.ID, len(chosen))
	case slices.ContainsFunc(chosen, func(b found) bool { return b.at.Place != chosen[0].at.Place }):
		return fault.New(fault.Usage, "--id %.80q: %d locks have this id: nothing was deleted; name the place of one lock only: %s", c.ID, len(chosen), strings.Join(names, ", "))
	}
	return nil
}

// leave prints the doubtful locks, which are stale by one clock and live by another, and returns the others. A person
// must judge a doubtful lock.
func (breakCmd) leave(r *show.Reporter, chosen []found) []found {
	return slices.DeleteFunc(chosen, func(b found) bool {
		if b.Verdict != replock.Doubtful {
			return false
		}
		removes := "{repolock break-lock}"
		if b.ID != "" { // without an id, break-lock asks
			removes += " --yes --id " + spell([]string{b.ID})
		}
		r.Say("left alone: %s; if its holder no longer runs, this deletes it: %s", r.LockText(b.Info), b.at.located(removes))
		return true
	})
}

// spare prints the locks that --stale or --dead leaves alone although they might not be held: locks that can't be
// read and, with --stale, locks whose process is gone.
func (c breakCmd) spare(r *show.Reporter, all []placed) {
	_, _, _ = everywhere(r, "reading the locks", all, func(p placed) ([]replock.Broken, error) {
		locks, err := p.Status(context.Background())
		for _, i := range locks {
			switch {
			case i.Verdict == replock.Unreadable:
				r.Say("left alone: %s; if no operation is running, this deletes it: %s", r.LockText(i), p.located("{repolock break-lock}"))
			case i.ProcessGone && !c.Dead && i.Verdict == replock.Live:
				r.Say("left alone: %s; this deletes it: %s", r.LockText(i), p.located("{repolock break-lock} --dead"))
			}
		}
		return nil, err
	})
}

// kills returns a warning for each live lock among chosen: the command under it won't survive the deletion.
func kills(chosen []found) (lines []string) {
	for _, b := range chosen {
		if show.Verdict(b.Info) == replock.Live.String() {
			lines = append(lines, fmt.Sprintf("live: %s: a command under it will be killed, unless its --on-lost is warn, the default of acquire", show.Holder(b.Info, 0)))
		}
	}
	return lines
}

func (c breakCmd) event(b replock.Broken, p session.Place) events.Event {
	return events.Event{Place: p.URL, Reason: c.why(), Event: replock.Event{
		Kind: events.LockBroken, Time: clock.System{}.Now(), Name: p.Name, Key: b.Key(), Holders: []replock.Info{b.Info}, Err: b.Err,
	}}
}

// why returns the reason in the audit log.
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

// which describes the chosen locks in an error.
func (c breakCmd) which() string {
	switch {
	case c.Stale:
		return "stale "
	case c.Dead:
		return "dead "
	default:
		return ""
	}
}

func (c breakCmd) ask(r *show.Reporter, chosen []found) bool {
	var killed strings.Builder
	show.Lines(&killed, "", kills(chosen))
	width := show.ColumnsOf(os.Stderr)
	fmt.Fprint(r.Stderr, show.LockTable(locksOf(chosen), width)+show.Folded(killed.String(), width)+question(len(chosen)))
	answer, _ := bufio.NewReader(os.Stdin).ReadString('\n')
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes"
}

// question asks whether to delete n locks. It fits a narrow terminal.
func question(n int) string {
	these := "this lock"
	if n > 1 {
		these = fmt.Sprintf("these %d locks", n)
	}
	return "Only if you are certain that no operation is running:\nDelete " + these + "? [y/N] "
}

func (c breakCmd) report(r *show.Reporter, done []found, looked string) error {
	out := struct {
		Broken []show.JSONLock `json:"broken"`
	}{Broken: []show.JSONLock{}}
	words := ""
	if len(done) == 0 {
		words = "nothing to break\n" + looked
	}
	for _, b := range done {
		out.Broken = append(out.Broken, show.NewJSONLock(b.Lock))
		at := ""
		if b.Place != "" {
			at = " in " + text.Escape(b.Place)
		}
		if b.Err != nil {
			continue
		}
		words += "deleted the " + deleted(b.Info) + at + "\n"
		if r.Verbose {
			for _, key := range b.Keys {
				words += "  " + text.Brief(key) + "\n"
			}
		}
	}
	return r.Result(out, show.Folded(words, show.ColumnsOf(os.Stdout)))
}

// deleted describes a lock that was deleted, in about one line.
func deleted(i replock.Info) string {
	if i.Holder == "" {
		s := fmt.Sprintf("%s %s lock", i.Verdict, i.Mode)
		if key := i.Key(); strings.HasPrefix(key, replock.DefaultPrefix) { // a URL of --also is the lock's place
			s += " " + show.Cut(text.Brief(path.Base(key)), show.MaxName)
		}
		return s
	}
	s := fmt.Sprintf("%s lock of %s", i.Mode, show.Who(i))
	if i.Operation != "" {
		s += ", operation " + text.Or(i.Operation, "-")
	}
	return s
}
