package also

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/locking"
)

// maxExamine bounds an examination.
const maxExamine = 30 * time.Second

// Examine looks at the system that keeps the lock, and writes nothing.
func (l Lock) Examine(ctx context.Context) (doctor.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, maxExamine)
	defer cancel()
	report := doctor.Report{Store: l.Place.URL, Latency: []doctor.Latency{}, Checks: []doctor.Check{}}
	seen, err := l.look(ctx)
	if err != nil {
		return report, err
	}
	held := doctor.Check{Name: doctor.Reachable, Result: doctor.OK, Detail: "the lock is free"}
	if seen != nil {
		held.Result, held.Detail = l.describe(seen)
	}
	report.Checks = append(report.Checks, held)
	var findings []locking.Finding
	if e, ok := l.Backend.(locking.Examiner); ok {
		if findings, err = e.Examine(ctx); err != nil {
			return report, err
		}
	}
	if exposed(l.secret) {
		findings = append(findings, locking.Finding{
			What: "password file", Severity: locking.Risky,
			Found: "all users of this machine can read " + l.secret + ", and break locks", Advice: "run chmod 600 on it",
		})
	}
	for _, f := range findings {
		report.Checks = append(report.Checks, check(f))
	}
	report.Verdict = verdict(report.Checks)
	return report, nil
}

// describe describes the present lock for a report.
func (l Lock) describe(seen *locking.Info) (doctor.Result, string) {
	info := l.info(seen)
	who := cmp.Or(info.Holder, "a holder that doesn't say its name")
	switch {
	case seen.Unreadable != "":
		return doctor.Warn, fmt.Sprintf("the lock is held, because it can't be read: %s; %s", seen.Unreadable, Hint(l.Place.URL, info))
	case seen.Stale:
		return doctor.OK, "there is a stale lock of " + who
	case info.Why != "":
		return doctor.OK, fmt.Sprintf("the lock is held by %s; %s", who, info.Why)
	default:
		return doctor.OK, "the lock is held by " + who
	}
}

func check(f locking.Finding) doctor.Check {
	c := doctor.Check{Name: strings.ReplaceAll(f.What, " ", "_"), Detail: f.Found}
	c.Result = map[locking.Severity]doctor.Result{locking.Good: doctor.OK, locking.Risky: doctor.Warn, locking.Bad: doctor.Fail}[f.Severity]
	if f.Advice != "" {
		c.Detail += "; " + f.Advice
	}
	return c
}

// verdict judges a system by its worst check.
func verdict(checks []doctor.Check) doctor.Verdict {
	has := func(r doctor.Result) bool {
		return slices.ContainsFunc(checks, func(c doctor.Check) bool { return c.Result == r })
	}
	switch {
	case has(doctor.Fail):
		return doctor.Verdict{Fitness: doctor.Unfit, Summary: "unfit for locks"}
	case has(doctor.Warn):
		return doctor.Verdict{Fitness: doctor.Fit, Summary: "fit for locks, except for the warnings above"}
	default:
		return doctor.Verdict{Fitness: doctor.Fit, Summary: "fit for locks, as far as its settings show"}
	}
}
