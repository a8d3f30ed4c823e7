package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/repolock/repolock/replock"
)

type statusCmd struct {
	Watch    bool          `short:"w" help:"Show it again and again: in place on a terminal, elsewhere when it changes."`
	Interval time.Duration `default:"2s" help:"How often to look, with --watch."`
}

func (c statusCmd) run(r *reporter, g global) (int, error) {
	if c.Watch && c.Interval < 100*time.Millisecond {
		return 0, usageError{fmt.Errorf("--interval %v: must be at least 100ms", c.Interval)}
	}
	l, err := g.locker(context.Background(), replock.Options{})
	if err != nil {
		return 0, err
	}
	if c.Watch {
		return 0, (&watching{r: r, l: l}).run(c.Interval)
	}
	infos, err := l.Status(context.Background())
	if err != nil {
		return 0, err
	}
	if err := showStatus(r, r.stdout, infos); err != nil || r.JSON {
		return 0, err
	}
	_, err = fmt.Fprintln(r.stdout, escape(g.looked()))
	return 0, err
}

// showStatus prints locks as a table, or as JSON.
func showStatus(r *reporter, w io.Writer, infos []replock.Info) error {
	if r.JSON {
		return printJSON(w, newJSONStatus(r.global, infos))
	}
	if len(infos) == 0 {
		_, err := fmt.Fprintln(w, "no locks")
		return err
	}
	return table(w, infos)
}

type jsonStatus struct {
	Locks      []jsonLock `json:"locks"`
	Repository string     `json:"repository"`
	LockName   string     `json:"lock_name"`
	Prefix     string     `json:"prefix"` // of the lock's keys
}

func newJSONStatus(g global, infos []replock.Info) jsonStatus {
	out := jsonStatus{Locks: []jsonLock{}, Repository: g.where(), LockName: lockName(g.Name), Prefix: lockPrefix(g.Name)}
	for _, i := range infos {
		out.Locks = append(out.Locks, newJSONLock(i))
	}
	return out
}

// table prints locks, one a line, and below what there is to say of some.
func table(w io.Writer, infos []replock.Info) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MODE\tOPERATION\tHOLDER\tSINCE\tREFRESHED\tEXPIRES\tVERDICT\tID")
	var notes []string
	for _, i := range infos {
		verdict := i.Verdict.String()
		if i.State == "waiting" && i.Verdict == replock.Live {
			verdict += ", waiting"
		}
		note := func(text string) { notes = append(notes, replock.Printable(i.Key())+": "+text) }
		if i.ProcessGone {
			verdict += ", process gone"
			note("its holder was a process of this machine, which is gone")
		}
		if i.Why != "" {
			note(replock.Printable(i.Why))
		}
		if !i.StoreClock && i.Verdict != replock.Unreadable {
			note("the store doesn't tell its time; what is left is by this machine's clock")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", i.Mode, dash(i.Operation), dash(i.Holder), since(i.Acquired),
			ago(i), left(i), verdict, dash(i.ID))
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, n := range notes {
		if _, err := fmt.Fprintln(w, n); err != nil {
			return err
		}
	}
	return nil
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return replock.Printable(s)
}

func since(t time.Time) string {
	if t.IsZero() {
		return "-"
	}
	return t.UTC().Format(time.RFC3339)
}

func ago(i replock.Info) string {
	if i.Verdict == replock.Unreadable && !i.StoreClock {
		return "-"
	}
	return max(i.Age, 0).Round(time.Second).String() + " ago"
}

func left(i replock.Info) string {
	switch {
	case i.Verdict == replock.Unreadable:
		return "never"
	case i.Left <= 0:
		return (-i.Left).Round(time.Second).String() + " ago"
	default:
		return "in " + i.Left.Round(time.Second).String()
	}
}
