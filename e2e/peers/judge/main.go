//go:build linux

// Command judge tries the lock of another program, as repolock torture tries repolock's own: real processes
// contend for it, holders are killed, stopped and continued, and package judge decides whether two ever held
// the lock together. docs/evidence/torture-others.md has its findings.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/alecthomas/kong"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/text"
)

// witnessCommand is the first word of the child's command line: witness ID LOG HOLD.
const witnessCommand = "witness"

func main() {
	if len(os.Args) == 5 && os.Args[1] == witnessCommand {
		os.Exit(witness(os.Args[2:]))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // the second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

func witness(args []string) (code int) {
	hold, err := time.ParseDuration(args[2])
	if err == nil {
		err = Witness{ID: args[0], Log: args[1], Hold: hold}.Do()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "judge: error:", text.Error(err))
		return fault.Exit(err)
	}
	return 0
}

// options are the flags.
type options struct {
	With       string        `required:"" placeholder:"COMMAND {}" help:"Take the lock and run {} under it. No shell runs this: wrap a command that needs one in sh -c '... {}'."`
	SharedWith string        `placeholder:"COMMAND {}" help:"The same for the lock's shared mode, if it has one."`
	Clean      string        `placeholder:"COMMAND" help:"Run this before each round."`
	Lease      time.Duration `default:"10s" help:"The time after which the lock of a dead holder is free: ${default} by default."`
	Faults     []Fault       `placeholder:"FAULT" help:"Faults of holders, in turn: ${faults}. All of them by default."`
	Rounds     *int          `placeholder:"N" help:"N rounds with each fault, in place of --duration."`
	Duration   time.Duration `default:"2m" help:"How long it runs: ${default} by default, and one round with each fault at least."`
	Clients    int           `default:"6" help:"How many processes contend at a time: ${default} by default."`
	Seed       uint64        `placeholder:"N" help:"Repeat the plan of the run that printed N."`
	Log        string        `placeholder:"FILE" help:"Write every event, a line of JSON each."`
	JSON       bool          `name:"json" help:"Print the result as JSON."`
}

func names(faults []Fault) string {
	var all []string
	for _, f := range faults {
		all = append(all, string(f))
	}
	return strings.Join(all, ", ")
}

// parse returns the flags of a command line, or the help text if the command line asks for it.
func parse(args []string) (o options, help string, err error) {
	var b strings.Builder
	parser, err := kong.New(&o, kong.Name("judge"), kong.Description("Try the lock of another program: see docs/evidence/torture-others.md."),
		kong.Vars{"faults": names(TrialFaults())}, kong.Writers(&b, &b), kong.Exit(func(int) {}))
	if err != nil {
		return o, "", err
	}
	if _, err = parser.Parse(args); b.Len() == 0 {
		if err == nil {
			err = o.check()
		}
		return o, "", err
	}
	return o, b.String(), nil
}

func (o options) check() error {
	switch {
	case o.Rounds != nil && *o.Rounds < 1:
		return fmt.Errorf("--rounds %d: must be at least 1", *o.Rounds)
	case o.Clients < 2 || o.Clients > 100:
		return fmt.Errorf("--clients %d: must be from 2 to 100", o.Clients)
	case o.Lease < time.Second:
		return fmt.Errorf("--lease %v: must be at least 1s", o.Lease)
	case o.Duration <= 0:
		return fmt.Errorf("--duration %v: must be positive", o.Duration)
	}
	for _, f := range o.Faults {
		if !slices.Contains(TrialFaults(), f) {
			return fmt.Errorf("--faults %s: must be of %s", f, names(TrialFaults()))
		}
	}
	return o.trial().Check()
}

func (o options) trial() Trial {
	t := Trial{
		Exclusive: o.With, Shared: o.SharedWith, Clean: o.Clean, Clients: o.Clients, Lease: o.Lease, Faults: o.Faults, Duration: o.Duration, Seed: o.Seed,
	}
	if o.Rounds != nil {
		t.Rounds = *o.Rounds
	}
	if len(t.Faults) == 0 {
		t.Faults = TrialFaults()
	}
	return t
}

// run tries a lock, prints the result to stdout and the progress to stderr, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) (code int) {
	fails := func(code int, err error) int {
		fmt.Fprintln(stderr, "judge: error:", text.Error(err))
		return code
	}
	o, help, err := parse(args)
	switch {
	case err != nil:
		return fails(fault.ExitUsage, err)
	case help != "":
		fmt.Fprint(stdout, help)
		return 0
	}
	if o.Seed == 0 {
		o.Seed = uint64(rand.Uint32())
	}
	trial := o.trial()
	if trial.Program, err = os.Executable(); err != nil {
		return fails(fault.Exit(err), err)
	}
	if o.Log != "" {
		log, err := os.Create(o.Log)
		if err != nil {
			return fails(fault.ExitUsage, fmt.Errorf("--log: %w", err))
		}
		defer log.Close()
		trial.Log = log
	}
	trial.Progress = func(r TrialReport) { fmt.Fprintln(stderr, progress(r)) }
	start := clock.System{}.Elapsed()
	report, failed := trial.Run(ctx)
	result := newResult(report, failed)
	result.Seed, result.Seconds = o.Seed, (clock.System{}.Elapsed() - start).Seconds()
	if result.Acquisitions > 0 { // there is a result beside the error
		if err := result.print(stdout, o.JSON); err != nil {
			return fails(fault.Exit(err), err)
		}
	}
	if failed != nil && result.Verdict != judge.Violated {
		fails(0, failed)
	}
	return exitCode(result.Verdict, ctx.Err() != nil, failed)
}

// exitCode returns the exit code. A violation wins over all errors.
func exitCode(verdict judge.Result, interrupted bool, failed error) int {
	switch {
	case verdict == judge.Violated:
		return fault.ExitUnfit
	case interrupted:
		return fault.ExitSignal + int(syscall.SIGINT)
	case failed != nil:
		return fault.Exit(failed)
	case verdict != judge.NotFound:
		return fault.ExitUnjudged
	default:
		return 0
	}
}

func progress(r TrialReport) string {
	var done []string
	for _, f := range r.Faults {
		done = append(done, fmt.Sprintf("%d %s", f.Rounds, f.Fault))
	}
	return fmt.Sprintf("%d locks; rounds: %s", r.Acquisitions(), strings.Join(done, ", "))
}

// result is the result in JSON.
type result struct {
	Verdict      judge.Result      `json:"verdict"`
	Why          string            `json:"why,omitempty"`
	Acquisitions int               `json:"acquisitions"`
	Faults       []*FaultReport    `json:"faults,omitempty"`
	LeftOut      []Omitted         `json:"left_out,omitempty"`
	Violations   []judge.Violation `json:"violations"`
	Pictures     []string          `json:"pictures,omitempty"`
	Seconds      float64           `json:"seconds"`
	Seed         uint64            `json:"seed"`
	EndedBecause string            `json:"ended_because,omitempty"`
}

func newResult(r TrialReport, failed error) result {
	v := r.Verdict
	t := result{
		Verdict: v.Result, Why: v.Why, Acquisitions: r.Acquisitions(), Faults: r.Faults, LeftOut: r.Left,
		Violations: append([]judge.Violation{}, v.Violations...), Pictures: r.Pictures,
	}
	if failed != nil {
		t.EndedBecause = text.Error(failed)
	}
	return t
}

func (t result) print(w io.Writer, asJSON bool) error {
	if asJSON {
		raw, err := text.MarshalIndent(t, "", "  ")
		return errors.Join(err, write(w, string(raw)+"\n"))
	}
	var b strings.Builder
	rows := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(rows, "FAULT\tROUNDS\tLOCKS\tREFUSED\tTWO IN\tWENT ON\tNEVER FREED\tFREE AFTER")
	for _, f := range t.Faults {
		fmt.Fprintf(rows, "%s\t%d\t%d\t%d\t%d\t%s\t%d\t%s\n", f.Fault, f.Rounds, f.Locks, f.Refused, f.TwoIn, inSeconds(f.WentOn), f.Blocked, inSeconds(f.FreeAfter))
	}
	rows.Flush()
	fmt.Fprintln(&b)
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
		fmt.Fprintf(&b, "%s\n\n", Legend)
	}
	if t.Verdict == judge.Violated && t.EndedBecause != "" {
		fmt.Fprintf(&b, "it ended early: %s\n", t.EndedBecause)
	}
	return write(w, b.String()+t.says()+"\n")
}

func write(w io.Writer, s string) error {
	_, err := io.WriteString(w, s)
	return err
}

func inSeconds(s float64) string {
	if s == 0 {
		return "-"
	}
	return time.Duration(s * float64(time.Second)).Round(time.Millisecond).String()
}

func (t result) says() string {
	rounds, two, blocked := 0, 0, 0
	for _, f := range t.Faults {
		rounds, two, blocked = rounds+f.Rounds, two+f.TwoIn, blocked+f.Blocked
	}
	switch t.Verdict {
	case judge.NotFound:
		return fmt.Sprintf("no violation found in %d rounds with %d acquisitions", rounds, t.Acquisitions)
	case judge.Violated:
		return fmt.Sprintf("VIOLATION: two holders at once in %d of %d rounds; in %d rounds the lock of an ended holder was never freed", two, rounds, blocked)
	default:
		return "whether there was a violation isn't known: " + text.Escape(t.Why)
	}
}
