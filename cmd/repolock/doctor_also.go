package main

import (
	"context"
	"fmt"

	"github.com/repolock/repolock/cmd/internal/also"
)

// other examines the system of a lock, and before it the repository if there is one.
func (c doctorCmd) other(r *reporter, g global) (int, error) {
	targets, err := also.Parse([]string{c.Also})
	if err != nil {
		return 0, err
	}
	c.Also = ""
	var code int
	if !g.alone(targets) {
		if code, err = c.run(r, g); err != nil {
			return code, err
		}
	}
	if t := targets[0]; t.Repository() {
		return c.run(r, g.at(t.Place))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer onSignal(cancel)()
	l, err := targets[0].Open(also.Request{Purpose: also.Look})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	report, err := l.Examine(ctx)
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.URL, err)
	}
	if err := printReport(r, report, ""); err != nil {
		return 0, err
	}
	return max(code, exitCode(report)), nil
}
