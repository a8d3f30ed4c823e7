package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/internal/torture"
)

// faults names all faults for --help.
func faults() string {
	var names []string
	for _, f := range torture.TrialFaults() {
		names = append(names, string(f))
	}
	return strings.Join(names, ", ")
}

// runWith tries a lock of another program.
func (c tortureCmd) runWith(r *reporter) (int, error) {
	program, err := procgroup.Executable()
	if err != nil {
		return 0, err
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32())
	}
	trial := torture.Trial{
		Exclusive: c.With, Shared: c.SharedWith, Clean: c.Clean, Program: program, Clients: c.Clients, Lease: c.Lease, Faults: c.Faults,
		Duration: c.Duration, Seed: c.Seed, JudgeFor: judgeFor,
	}
	if c.Rounds != nil {
		trial.Rounds = *c.Rounds
	}
	if len(trial.Faults) == 0 {
		trial.Faults = torture.TrialFaults()
	}
	if err := fault.Join(c.checkWith(), trial.Check()); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	if err := regular.Writable(c.HTML); err != nil {
		return 0, fault.New(fault.Usage, "--html: %w", err)
	}
	log, err := newEvidence(c.Log, "log")
	if err != nil {
		return 0, fault.New(fault.Usage, "--log: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	defer onSignal(cancel)()
	trial.Log, trial.Progress = log, func(t torture.TrialReport) { r.live(progressOf(t)) }
	start := clock.System{}.Elapsed()
	report, failed := trial.Run(ctx)
	r.live("")
	result := newTrialResult(report, c.Seed, clock.System{}.Elapsed()-start)
	needed := result.Verdict != judge.NotFound && result.Acquisitions > 0
	if err := result.keep(c.HTML, log, report.Verdict, needed); err != nil {
		failed = fault.Join(err, failed)
	}
	if failed != nil {
		result.EndedBecause = text.Error(failed)
	}
	if result.Acquisitions > 0 { // more than an error
		if err := result.print(r); err != nil {
			return 0, err
		}
	}
	return tortureExit(ctx, result.Verdict, result.Why, failed)
}

func (c tortureCmd) checkWith() error {
	switch {
	case c.URL != "" || c.Keep || c.NoLock || c.TTL != defaultTortureTTL:
		return errors.New("--with uses no repository: it goes without one, --ttl, --keep and --no-lock")
	case c.Clients < 2 || c.Clients > 100:
		return fmt.Errorf("--clients %d: must be from 2 to 100", c.Clients)
	case c.Lease < time.Second:
		return fmt.Errorf("--lease %v: must be at least 1s", c.Lease)
	case c.Duration <= 0:
		return fmt.Errorf("--duration %v: must be positive", c.Duration)
	}
	for _, f := range c.Faults {
		if !slices.Contains(torture.TrialFaults(), f) {
			return fmt.Errorf("--faults %s: must be of %s", f, faults())
		}
	}
	return nil
}

func progressOf(t torture.TrialReport) string {
	var done []string
	for _, f := range t.Faults {
		done = append(done, fmt.Sprintf("%d %s", f.Rounds, f.Fault))
	}
	return fmt.Sprintf("%d locks; rounds: %s", t.Acquisitions(), strings.Join(done, ", "))
}

// trialResult is the outcome of torture --with, in JSON. Fields are only ever added.
type trialResult struct {
	Verdict      judge.Result           `json:"verdict"`
	Why          string                 `json:"why,omitempty"`
	Acquisitions int                    `json:"acquisitions"`
	Faults       []*torture.FaultReport `json:"faults"`
	LeftOut      []torture.Omitted      `json:"left_out,omitempty"`
	Violations   []judge.Violation      `json:"violations"`
	Pictures     []string               `json:"pictures,omitempty"`
	Seconds      float64                `json:"seconds"`
	Seed         uint64                 `json:"seed"`
	EndedBecause string                 `json:"ended_because,omitempty"`
	kept
}

func newTrialResult(t torture.TrialReport, seed uint64, took time.Duration) *trialResult {
	return &trialResult{
		Verdict: t.Verdict.Result, Why: t.Verdict.Why, Acquisitions: t.Acquisitions(), Faults: t.Faults, LeftOut: t.Left,
		Violations: append([]judge.Violation{}, t.Verdict.Violations...), Pictures: t.Pictures, Seconds: took.Seconds(), Seed: seed,
	}
}

func (t *trialResult) print(r *reporter) error {
	rows := []string{"FAULT\tROUNDS\tLOCKS\tREFUSED\tTWO IN\tWENT ON\tNEVER FREED\tFREE AFTER"}
	for _, f := range t.Faults {
		rows = append(rows, fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s", f.Fault, f.Rounds, f.Locks, f.Refused, f.TwoIn, inSeconds(f.WentOn), f.Blocked, inSeconds(f.FreeAfter)))
	}
	var b strings.Builder
	fmt.Fprintln(&b, aligned(rows...))
	for _, o := range t.LeftOut {
		fmt.Fprintf(&b, "%s was left out: %s\n", o.Fault, text.Escape(o.Why))
	}
	for _, p := range t.Pictures {
		for line := range strings.Lines(p) {
			fmt.Fprintln(&b, text.Escape(strings.TrimSuffix(line, "\n")))
		}
		fmt.Fprintln(&b)
	}
	if len(t.Pictures) > 0 {
		fmt.Fprintf(&b, "%s\n\n", torture.Legend)
	}
	t.kept.print(&b)
	if t.Verdict == judge.Violated && t.EndedBecause != "" {
		fmt.Fprintf(&b, "it ended early: %s\n", t.EndedBecause)
	}
	fmt.Fprintln(&b, t.says())
	return r.result(t, b.String())
}

func inSeconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

// says returns the verdict in words.
func (t *trialResult) says() string {
	rounds, two, blocked := 0, 0, 0
	for _, f := range t.Faults {
		rounds, two, blocked = rounds+f.Rounds, two+f.TwoIn, blocked+f.Blocked
	}
	switch t.Verdict {
	case judge.NotFound:
		return fmt.Sprintf("no violation found in %d rounds with %d acquisitions", rounds, t.Acquisitions)
	case judge.Violated:
		return fmt.Sprintf("VIOLATION: two were in together in %d of %d rounds, and the lock of an ended holder was never freed in %d", two, rounds, blocked)
	default:
		return "whether there was a violation isn't known: " + text.Escape(t.Why)
	}
}
