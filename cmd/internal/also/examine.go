package also

import (
	"context"
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
		held.Detail = "the lock is held by " + l.info(seen).Holder
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
	report.Verdict = verdict(findings)
	return report, nil
}

func check(f locking.Finding) doctor.Check {
	c := doctor.Check{Name: strings.ReplaceAll(f.What, " ", "_"), Detail: f.Found}
	c.Result = map[locking.Severity]doctor.Result{locking.Good: doctor.OK, locking.Risky: doctor.Warn, locking.Bad: doctor.Fail}[f.Severity]
	if f.Advice != "" {
		c.Detail += "; " + f.Advice
	}
	return c
}

func verdict(findings []locking.Finding) doctor.Verdict {
	worst := locking.Good
	for _, f := range findings {
		worst = max(worst, f.Severity)
	}
	return map[locking.Severity]doctor.Verdict{
		locking.Good:  {Fitness: doctor.Fit, Summary: "fit for locks, as far as its settings show"},
		locking.Risky: {Fitness: doctor.Fit, Summary: "fit for locks, but one can be lost in the cases above"},
		locking.Bad:   {Fitness: doctor.Unfit, Summary: "unfit for locks"},
	}[worst]
}
