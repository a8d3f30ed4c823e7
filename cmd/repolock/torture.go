package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/repolock/repolock/cmd/internal/session"
	"github.com/repolock/repolock/cmd/internal/show"
	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/procgroup"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/internal/torture"
	"github.com/repolock/repolock/replock"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

type tortureCmd struct {
	URL      string        `predictor:"repository" arg:"" optional:"" name:"url" help:"Repository, in place of --repo."`
	Duration time.Duration `default:"2m" help:"How long it runs: ${default} by default."`
	Clients  int           `default:"6" help:"How many processes contend at a time: ${default} by default."`
	TTL      time.Duration `default:"10s" help:"The ttl of the locks: ${default} by default, which is the shortest."`
	Seed     uint64        `placeholder:"N" help:"Repeat the plan of the run that printed N."`
	Log      string        `predictor:"file" placeholder:"FILE" help:"Write every event, a line of JSON each. A violation's log is always kept."`
	Keep     bool          `help:"Leave the objects in the repository."`
	NoLock   bool          `help:"Take no lock, to see that torture finds violations."`
}

func (c tortureCmd) run(r *show.Reporter, g global) (int, error) {
	if err := c.check(g); err != nil {
		return 0, fault.As(fault.Usage, err)
	}
	program, err := procgroup.Executable()
	if err != nil {
		return 0, err
	}
	if c.Seed == 0 {
		c.Seed = uint64(rand.Uint32())
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	show := &tortureShow{Reporter: r, start: clock.System{}.Elapsed()}
	defer onSignals(func(sig os.Signal, _ func()) { show.signalled(sig.(syscall.Signal), cancel) })()
	s, err := g.store(ctx)
	if err != nil {
		return 0, err
	}
	log, err := newEvidence(c.Log)
	if err != nil {
		return 0, fault.New(fault.Usage, "--log: %w", err)
	}
	show.writes("", log)
	result, failed := c.torture(ctx, g, s, program, show)
	result.Seconds, result.Seed = (clock.System{}.Elapsed() - show.start).Seconds(), c.Seed
	if err := result.keep(log, errors.Is(failed, fault.TooFew)); err != nil {
		failed = fault.Join(err, failed)
	}
	if result.Acquisitions > 0 || len(result.Left) > 0 || result.LeftBecause != "" { // there is a result beside the error
		if err := result.print(r); err != nil {
			return 0, err
		}
	}
	return result.exit(ctx, failed)
}

func (c tortureCmd) check(g global) error {
	switch {
	case g.Name != "":
		return errors.New("--name: torture makes a lock of its own")
	case c.URL != "" && g.OnLine("repo"):
		return twoRepositories
	case c.Clients < 2 || c.Clients > 100:
		return fmt.Errorf("--clients %d: must be from 2 to 100", c.Clients)
	case c.Duration <= 0:
		return fmt.Errorf("--duration %v: must be positive", c.Duration)
	case c.TTL < replock.MinTTL || c.TTL > replock.MaxTTL:
		return fmt.Errorf("--ttl %v: must be from %v to %v", c.TTL, replock.MinTTL, replock.MaxTTL)
	}
	return nil
}

// torture lets processes contend for a lock of its own in the store.
func (c tortureCmd) torture(ctx context.Context, g global, s store.Store, program string, show *tortureShow) (*tortureResult, error) {
	name := fmt.Sprintf("torture-%s-%016x", clock.System{}.Now().UTC().Format("20060102t150405z"), rand.Uint64())
	prefix := session.Place{Name: name}.Prefix()
	client := torture.Repolock{Program: program, Locks: g.Repo, Data: g.Repo, Name: name, TTL: c.TTL, NoLock: c.NoLock}
	show.writes(prefix, show.log)
	report, failed := torture.Run(ctx, objects{s}, torture.Options{
		Clients: slices.Repeat([]func(torture.Work) []string{client.Command}, c.Clients), Chances: torture.UsualChances, Conflicts: fewest,
		Prefix: prefix, Keep: c.Keep, TTL: c.TTL, Duration: c.Duration, Seed: c.Seed,
		Log: show.log, Progress: show.progress, Ending: show.ending,
	})
	show.ending("")
	if !c.Keep {
		removeDirectory(g.Repo, prefix)
	}
	return newTortureResult(report, prefix), failed
}

// removeDirectory removes the files that a listing of the store doesn't show: temporary files of killed processes,
// and their directories.
func removeDirectory(repo, prefix string) {
	location, err := open.Parse(repo)
	if err != nil || location.Scheme != "file" {
		return
	}
	dir := filepath.Join(location.Path, filepath.FromSlash(prefix))
	_ = os.RemoveAll(dir)
	for range strings.Count(prefix, "/") - 1 {
		dir = filepath.Dir(dir)
		_ = os.Remove(dir) // fails if the directory isn't empty
	}
}

// tortureChildCmd is the command that torture runs under its lock.
type tortureChildCmd struct {
	ID   string        `required:""`
	Mode judge.Mode    `required:"" enum:"shared,exclusive"`
	Data string        `required:""`
	Hold time.Duration `required:""`
}

func (c tortureChildCmd) run(r *show.Reporter, g global) (int, error) {
	work := torture.Work{ID: c.ID, Mode: c.Mode, Data: c.Data, Hold: c.Hold}
	open := func(ctx context.Context) (torture.Objects, error) {
		s, err := g.store(ctx)
		return objects{s}, err
	}
	return 0, work.Do(context.Background(), open, r.Stdout)
}

// objects adapts a store to torture.Objects. internal/torture can't do that, because it must not import package store.
type objects struct{ store.Store }

func (o objects) Put(ctx context.Context, key string, body []byte) error {
	_, err := o.Store.Put(ctx, key, body, store.PutOptions{})
	return err
}

func (o objects) Keys(ctx context.Context, prefix string) ([]string, error) {
	return store.Keys(ctx, o.Store, prefix)
}

// tortureShow shows the progress of torture, and then the steps of its end. If the store can't be reached, these steps
// take a minute.
type tortureShow struct {
	*show.Reporter
	start time.Duration
	steps int // calls of progress

	mu          sync.Mutex
	doing       string // the step after the last round; "" before
	interrupted bool
	prefix      string // of the objects; "" until there can be any
	log         evidence
}

// sparse is the number of seconds between progress lines when stderr is no terminal.
const sparse = 15

// progress is called each second. It draws the live line on a terminal, and elsewhere prints a line each sparse
// seconds.
func (s *tortureShow) progress(c torture.Counts) {
	text := fmt.Sprintf("%v: %d locks (%d shared, %d exclusive), %d held, %d lost, %d resumed, %d killed, %d stopped, %d writes, %d violations",
		(clock.System{}.Elapsed() - s.start).Round(time.Second), c.Acquisitions(), c.Shared, c.Exclusive, c.Held, c.Lost, c.Resumed, c.Killed, c.Stopped, c.Writes, c.Violations)
	if s.Live(text) {
		return
	}
	if s.steps++; s.steps%sparse == 0 || s.steps == 1 && s.ShowsOn(show.DumbTerminal) {
		s.Say("%s", text)
	}
}

// writes notes the prefix of the objects, which leave names, and the log, which leave closes.
func (s *tortureShow) writes(prefix string, log evidence) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.prefix, s.log = prefix, log
}

// ending shows the present step after the last round. "" means that there is none.
func (s *tortureShow) ending(what string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.doing = what; what == "" {
		s.EndWait()
	}
	s.showEnding()
}

func (s *tortureShow) showEnding() {
	switch {
	case s.doing == "":
	case s.interrupted:
		s.Step("interrupted", s.doing+"; Ctrl-C again ends it at once")
	default:
		s.Step("ending", s.doing)
	}
}

// signalled cancels a context at the first signal, so that the clients end and objects are deleted.
// The second signal ends the process.
func (s *tortureShow) signalled(sig syscall.Signal, cancel context.CancelCauseFunc) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.interrupted {
		s.leave(sig)
	}
	s.interrupted = true
	cancel(session.Signalled(sig))
	s.showEnding()
}

// leave ends the process. Its error names the objects that it leaves behind.
func (s *tortureShow) leave(sig syscall.Signal) {
	s.EndWait()
	failed := session.Signalled(sig)
	if s.log.File != nil {
		_, _ = s.log.close(false)
	}
	if s.prefix != "" {
		failed = fmt.Errorf("%w: nothing was judged; locks and objects might be left below %s: remove them by hand", failed, s.prefix)
	}
	code := s.Fail(failed)
	session.Interrupt(sig, false)
	os.Exit(code)
}

// tortureResult is the result of torture in JSON. Fields are only ever added.
type tortureResult struct {
	Verdict      judge.Result      `json:"verdict"`
	Why          string            `json:"why,omitempty"`
	Acquisitions int               `json:"acquisitions"`
	Counts       torture.Counts    `json:"counts"`
	Late         int               `json:"late"`
	Violations   []judge.Violation `json:"violations"`
	Seconds      float64           `json:"seconds"`
	Seed         uint64            `json:"seed"`
	Prefix       string            `json:"prefix,omitempty"`
	Log          string            `json:"log,omitempty"`
	Left         []string          `json:"left,omitempty"`
	LeftBecause  string            `json:"left_because,omitempty"`
}

func newTortureResult(r torture.Report, prefix string) *tortureResult {
	t := &tortureResult{
		Verdict: r.Verdict.Result, Why: r.Verdict.Why, Acquisitions: r.Counts.Acquisitions(), Counts: r.Counts, Late: r.Verdict.Late,
		Violations: append([]judge.Violation{}, r.Verdict.Violations...), Prefix: prefix, Left: r.Left,
	}
	if r.LeftBecause != nil {
		t.LeftBecause = text.Error(r.LeftBecause)
	}
	return t
}

// evidence is the log, which is kept if the user asked for it, or if the verdict needs evidence.
type evidence struct {
	*os.File
	asked bool
}

// newEvidence creates the file of this name, or without a name a file in the temporary directory.
func newEvidence(name string) (evidence, error) {
	if name != "" {
		f, err := regular.Create(name)
		return evidence{f, true}, err
	}
	f, err := os.CreateTemp("", "repolock-torture-*.log")
	return evidence{f, false}, err
}

// close closes the file, and deletes it if the user didn't ask for it and it isn't needed. It returns the name of a
// file that it keeps.
func (e evidence) close(needed bool) (name string, err error) {
	err = e.Close()
	if !e.asked && !needed {
		return "", fault.Join(err, os.Remove(e.Name()))
	}
	return e.Name(), err
}

// keep keeps the log if the user asked for it, or if the verdict needs evidence. If too little happened, only a
// violation needs it.
func (t *tortureResult) keep(log evidence, tooFew bool) (err error) {
	unknown := t.Verdict != judge.NotFound && t.Acquisitions > 0 && !tooFew
	if t.Log, err = log.close(unknown || len(t.Violations) > 0); err != nil {
		return fmt.Errorf("the log can't be kept: %w", err)
	}
	return nil
}

func (t *tortureResult) print(r *show.Reporter) error {
	var b strings.Builder
	fmt.Fprintln(&b, show.Aligned(t.table()...))
	var violations []string
	for _, v := range t.Violations {
		violations = append(violations, strings.ReplaceAll(v.Name, "_", " ")+": "+v.Text)
	}
	show.Lines(&b, "", violations)
	if t.Log != "" {
		fmt.Fprintf(&b, "log: %s\n", text.Escape(t.Log))
	}
	t.printLeft(&b)
	fmt.Fprint(&b, t.says()+"\n"+t.proves())
	return r.Result(t, b.String())
}

// table returns the rows for show.Aligned.
func (t *tortureResult) table() []string {
	c := t.Counts
	return []string{
		fmt.Sprint("shared locks\t", c.Shared), fmt.Sprint("exclusive locks\t", c.Exclusive), fmt.Sprint("refused, since held\t", c.Held),
		fmt.Sprint("attempts that met a holder\t", c.Conflicts),
		fmt.Sprint("not taken for other reasons\t", c.Failed), fmt.Sprint("lost\t", c.Lost), fmt.Sprint("resumed\t", c.Resumed),
		fmt.Sprint("processes killed\t", c.Killed), fmt.Sprint("stopped and continued\t", c.Stopped), fmt.Sprint("terminated\t", c.Terminated),
		fmt.Sprint("writes\t", c.Writes), fmt.Sprint("requests without an answer\t", c.Unanswered), fmt.Sprint("changes that arrived late\t", t.Late),
	}
}

func (t *tortureResult) printLeft(b *strings.Builder) {
	switch n := len(t.Left); {
	case n == 1:
		fmt.Fprintf(b, "an object is left below %s; remove it by hand: %s\n", t.Prefix, cmp.Or(t.LeftBecause, "it came back"))
	case n > 1:
		fmt.Fprintf(b, "%d objects are left below %s; remove them by hand: %s\n", n, t.Prefix, cmp.Or(t.LeftBecause, "they came back"))
	case t.LeftBecause != "":
		fmt.Fprintf(b, "objects might be left below %s, which could not be listed; remove them by hand: %s\n", t.Prefix, t.LeftBecause)
	}
}

// Only an attempt that meets another holder can show whether the lock holds. A run with fewer than fewest such attempts
// has no verdict. A run with fewer than few proves little.
const (
	fewest = 10
	few    = 1000
)

// proves returns a sentence about a short run, or "". After n attempts without a violation, up to one in n/3 can still
// go wrong, with 95 % confidence.
func (t *tortureResult) proves() string {
	n := t.Counts.Conflicts
	if t.Verdict != judge.NotFound || n >= few {
		return ""
	}
	return fmt.Sprintf("%d attempts that met a holder prove little: one in %d could still go wrong; try a longer --duration\n", n, max(n/3, 1))
}

func (t *tortureResult) says() string {
	switch t.Verdict {
	case judge.NotFound:
		return fmt.Sprintf("no violation found in %d acquisitions", t.Acquisitions)
	case judge.Violated:
		return fmt.Sprintf("VIOLATION: locks don't hold here; %d violations in %d acquisitions", len(t.Violations), t.Acquisitions)
	default:
		return "whether there was a violation isn't known: " + text.Escape(t.Why)
	}
}

// exit returns the exit code. A violation wins over all errors.
func (t *tortureResult) exit(ctx context.Context, failed error) (int, error) {
	switch {
	case t.Verdict == judge.Violated:
		return fault.ExitUnfit, nil
	case errors.Is(context.Cause(ctx), fault.Interrupted):
		return 0, context.Cause(ctx)
	case failed != nil:
		return 0, failed
	case t.Verdict != judge.NotFound:
		return 0, fmt.Errorf("%w: %s", torture.ErrUnjudged, t.Why)
	default:
		return 0, nil
	}
}
