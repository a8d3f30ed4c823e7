package main

import (
	"context"
	"fmt"
	"time"

	"github.com/repolock/repolock/internal/events"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/replock"
)

type statusCmd struct {
	Watch    bool          `short:"w" help:"Keep showing the locks: in place on a terminal, elsewhere when they change."`
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
		return 0, (&statusWatch{r: r, l: l}).run(c.Interval)
	}
	infos, err := l.Status(context.Background())
	if err != nil {
		return 0, err
	}
	return 0, r.result(newJSONStatus(g, infos), table(infos)+text.Escape(g.place().Looked())+"\n")
}

type jsonStatus struct {
	Locks      []jsonLock `json:"locks"`
	Repository string     `json:"repository"`
	LockName   string     `json:"lock_name"`
	Prefix     string     `json:"prefix"` // of the lock's keys
}

func newJSONStatus(g global, infos []replock.Info) jsonStatus {
	out := jsonStatus{Locks: []jsonLock{}, Repository: g.place().Where(), LockName: events.LockName(g.Name), Prefix: g.place().Prefix()}
	for _, i := range infos {
		out.Locks = append(out.Locks, newJSONLock(i))
	}
	return out
}

// table lists locks, one a line, and notes about some of them below.
func table(infos []replock.Info) string {
	if len(infos) == 0 {
		return "no locks\n"
	}
	rows := []string{"MODE\tOPERATION\tHOLDER\tSINCE\tREFRESHED\tEXPIRES\tVERDICT\tID"}
	notes := ""
	for _, i := range infos {
		verdict := i.Verdict.String()
		if i.State == "waiting" && i.Verdict == replock.Live {
			verdict += ", waiting"
		}
		note := func(says string) { notes += text.Brief(i.Key()) + ": " + says + "\n" }
		if i.ProcessGone {
			verdict += ", process gone"
			note("its holder was a process of this machine, which is gone")
		}
		if i.Why != "" {
			note(text.Brief(i.Why))
		}
		if !i.StoreClock && i.Verdict != replock.Unreadable {
			note("the store doesn't tell its time; what is left is by this machine's clock")
		}
		rows = append(rows, fmt.Sprintf("%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s", i.Mode, text.Or(i.Operation, "-"), text.Or(i.Holder, "-"), since(i.Acquired),
			ago(i), left(i), verdict, text.Or(i.ID, "-")))
	}
	return aligned(rows...) + notes
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
