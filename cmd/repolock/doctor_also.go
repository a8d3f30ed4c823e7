package main

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/repolock/repolock/cmd/internal/also"
	"github.com/repolock/repolock/internal/fault"
)

var errGateways = fault.New(fault.Usage, "--also: doctor takes one more URL of the same repository; nothing was examined")

// others examines the systems of locks, and before them the repository if there is one. A
// failure hides no other system.
func (c doctorCmd) others(r *reporter, g global) (code int, err error) {
	var urls []string
	c.Also = slices.DeleteFunc(slices.Clone(c.Also), func(raw string) bool {
		if !also.Known(raw) {
			return false
		}
		urls = append(urls, raw)
		return true
	})
	targets, err := also.Parse(urls)
	switch {
	case err != nil:
		return 0, err
	case len(c.Also) > 0 && g.Repo == "" && g.unknown == nil:
		return 0, fault.New(fault.Usage, "--also: another URL of a repository needs --repo; nothing was examined")
	case len(c.Also) > 1:
		return 0, errGateways
	}
	note := func(one int, failed error) bool {
		code, err = max(code, one), fault.Join(err, failed)
		return !errors.Is(failed, fault.Interrupted)
	}
	if !g.alone(targets) && !note(c.run(r, g)) {
		return code, err
	}
	c.Also = nil
	for _, t := range targets {
		if !note(c.other(r, g, t)) {
			break
		}
	}
	return code, err
}

// other examines the system of one lock.
func (c doctorCmd) other(r *reporter, g global, t also.Target) (int, error) {
	if t.Repository() {
		return c.run(r, g.at(t.Place))
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer onSignal(cancel)()
	l, err := t.Open(also.Request{Purpose: also.Look})
	if err != nil {
		return 0, err
	}
	defer l.Close()
	w := newConsole(r)
	w.examining(l.URL)
	report, err := l.Examine(ctx)
	w.EndWait()
	if err != nil {
		return 0, fmt.Errorf("%s: %w", l.URL, err)
	}
	return exitCode(report), printReport(r, report, "", "")
}
