// Package torture makes real processes contend for one lock for a while, kills and stops
// them, and lets package judge decide whether the lock held. It knows neither locks nor
// stores: its caller passes the commands that take a lock, and the objects that they protect.
// It writes only below one prefix, which it deletes at the end.
//
// A Trial does the same for any lock that wraps a command. Its children protect no objects.
// They write to one log, and the trial inflicts each fault on a process that is known to hold
// the lock.
package torture

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
	"github.com/repolock/repolock/internal/parallel"
)

// Options are the options of a run.
type Options struct {
	// Clients take the lock over and over. Each returns the command line that does some work under the
	// lock. Its stdout must be the log of Work.Do and nothing else.
	Clients []func(Work) []string
	Env     []string // of the clients, in addition to ours
	// Prefix is the prefix of all keys, of locks and data; it ends in a slash. The data is
	// below its "data/". Run deletes the prefix at the end unless Keep is set.
	Prefix string
	Keep   bool
	TTL    time.Duration // of the locks
	// Duration is how long the clients contend, and JudgeFor bounds the time of the verdict.
	Duration, JudgeFor time.Duration
	// Seed of the plan. The outcome of a plan is not the same each time.
	Seed     uint64
	Chances  Chances
	Log      io.Writer    // receives each event as a line of JSON, if it isn't nil
	Progress func(Counts) // is called each second, if it isn't nil
	// Ending is called with what Run does when the time is over or the context has ended, once for
	// each step, if it isn't nil.
	Ending func(what string)
}

// Counts counts what has happened so far. Fields of the JSON are only ever added.
type Counts struct {
	// Shared and Exclusive count the locks whose child ran.
	Shared    int `json:"shared"`
	Exclusive int `json:"exclusive"`
	// Held counts attempts refused because of another holder, and Failed those that failed
	// for another reason.
	Held   int `json:"held"`
	Failed int `json:"failed"`
	// Lost counts lost locks, and Resumed those resumed after their command was stopped.
	Lost    int `json:"lost"`
	Resumed int `json:"resumed"`
	// Faults inflicted.
	Killed     int `json:"killed"`
	Stopped    int `json:"stopped"`
	Terminated int `json:"terminated"`
	// Writes counts answered writes, and Unanswered requests without an answer.
	Writes     int `json:"writes"`
	Unanswered int `json:"unanswered"`
	Violations int `json:"violations"`
}

// Acquisitions returns the number of locks taken.
func (c Counts) Acquisitions() int { return c.Shared + c.Exclusive }

// Report is the outcome of a run.
type Report struct {
	Verdict judge.Verdict
	Counts  Counts
	// Left are the keys that could not be deleted, and LeftBecause is the reason.
	Left        []string
	LeftBecause error
}

// notAcquired is the error of a run in which no client got the lock. code is the exit code of the last
// client, and says the last line of its stderr.
func notAcquired(code int, says string) error {
	if code <= 0 || code >= fault.ExitSignal {
		code = 0
	}
	return &fault.Error{Class: fault.TortureFailed, Err: errors.New("no client got the lock: " + says), Exit: code}
}

// Run lets the clients contend until the time is over or the context ends, and judges the
// history. Of the objects, which are the ones that the clients work on, it only deletes those
// with the prefix. After an error the report still has a verdict, in which a violation counts.
func Run(ctx context.Context, o Objects, opts Options) (Report, error) {
	r := &run{opts: opts, chances: opts.Chances.filled()}
	r.contest.log, r.contest.fail = opts.Log, r.fail
	err := r.contend(ctx)
	if err == nil && r.counts.Acquisitions() == 0 {
		err = r.notAcquired()
	}
	r.ending("judging what they did")
	report := Report{Verdict: r.verdict(err, opts.JudgeFor), Counts: r.counts}
	report.Counts.Violations = len(report.Verdict.Violations)
	if !opts.Keep {
		r.ending("deleting the objects, for a minute at most")
		report.Left, report.LeftBecause = cleanUp(ctx, o, opts.Prefix)
	}
	return report, err
}

func (r *run) ending(what string) {
	if r.opts.Ending != nil {
		r.opts.Ending(what)
	}
}

// notAcquired returns the error of a run whose time was over before a client got the lock.
func (r *run) notAcquired() error {
	says := r.lastSays
	switch {
	case says != "":
	case r.counts.Failed > 0:
		says = fmt.Sprintf("the last one exited with code %d and printed nothing", r.lastCode)
	case r.counts.Held > 0:
		says = fmt.Sprintf("it was held each of the %d times they tried", r.counts.Held)
	default:
		says = fmt.Sprintf("all were still trying when the run ended after %v", r.contended.Round(time.Second))
	}
	return notAcquired(r.lastCode, says)
}

// run is the state of Run.
type run struct {
	contest   // its mu guards the last three, too
	opts      Options
	chances   Chances
	cancel    context.CancelCauseFunc // ends the run
	contended time.Duration           // how long the clients contended

	counts   Counts
	lastCode int // of the last client that failed to get the lock
	lastSays string
}

// errOver is the cause that ends a successful run.
var errOver = errors.New("the run is over")

// contend runs the clients. The end of the caller's context ends them and is no error.
func (r *run) contend(ctx context.Context) error {
	ctx, r.cancel = context.WithCancelCause(ctx)
	defer r.cancel(nil)
	var clients, others sync.WaitGroup
	for n, c := range r.opts.Clients {
		clients.Go(func() { r.client(ctx, n, c) })
	}
	others.Go(func() { r.watch(ctx) })
	clients.Wait()
	r.cancel(errOver)
	others.Wait()
	return failed(ctx)
}

// failure is the cause that ends a run, or a round, without a result.
type failure struct{ error }

// failed returns the error of a client that has ended the run, or the round.
func failed(ctx context.Context) error {
	f, _ := context.Cause(ctx).(failure)
	return f.error
}

func (r *run) fail(err error) { r.cancel(failure{err}) }

// watch ends the run in time, and calls Progress and Ending.
func (r *run) watch(ctx context.Context) {
	c := clock.System{}
	start := c.Elapsed()
	end := start + r.opts.Duration
	for {
		if c.Elapsed() >= end {
			r.cancel(errOver)
		}
		if r.opts.Progress != nil {
			r.opts.Progress(r.counted())
		}
		if clock.Sleep(ctx, c, time.Second) != nil {
			r.contended = c.Elapsed() - start
			r.ending("waiting for the clients to release their locks")
			return
		}
	}
}

// counted returns the counts, with the violations known so far.
func (r *run) counted() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	found, _ := judge.Seen(r.sections)
	r.counts.Violations = len(found)
	return r.counts
}

// count counts a lock, by its mode, or an inflicted fault.
func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.counts
	*map[string]*int{
		string(judge.Shared): &c.Shared, string(judge.Exclusive): &c.Exclusive,
		string(kill): &c.Killed, string(stop): &c.Stopped, string(term): &c.Terminated,
	}[what]++
}

// client makes one attempt after the other.
func (r *run) client(ctx context.Context, n int, command func(Work) []string) {
	random := rand.New(rand.NewPCG(r.opts.Seed, uint64(n)))
	for turn := 1; ctx.Err() == nil; turn++ {
		chances, behind := r.chancesNow()
		p := newPlan(random, fmt.Sprintf("c%d-%d", n, turn), r.opts.Prefix+"data/", r.opts.TTL, chances, behind)
		entered, err := r.attempt(ctx, n, command, p)
		if err != nil {
			r.fail(err)
			return
		}
		if !entered {
			p.pause *= 2 // it is in another's way
		}
		_ = clock.Sleep(ctx, clock.System{}, p.pause)
	}
}

// chancesNow returns the chances of the next turn, which make up for what happened too often
// so far. behind: too few of the locks that were taken are exclusive.
func (r *run) chancesNow() (c Chances, behind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chances.left(r.counts), float64(r.counts.Exclusive) < r.chances.Exclusive*float64(r.counts.Acquisitions())
}

// maxFailures is how many turns of each client can fail while none has got the lock.
const maxFailures = 3

// account adds a section that has ended, and counts how. After an error there is no verdict.
func (r *run) account(s judge.Section, code int, stderr string) error {
	if code == CodeUnjudged || code == panicked {
		return fmt.Errorf("%w: %s broke down: %s", ErrUnjudged, s.ID, lastLine(stderr))
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.counts
	for _, a := range s.Acts {
		switch {
		case !a.Answered:
			c.Unanswered++
		case a.Op != "list":
			c.Writes++
		}
	}
	switch {
	case code == codeLost:
		c.Lost++
	case !s.Entered && code == codeHeld:
		c.Held++
	case !s.Entered && len(s.Faults) == 0:
		c.Failed++
		r.lastCode, r.lastSays = code, lastLine(stderr)
	}
	c.Resumed += strings.Count(stderr, saysResumed)
	if c.Acquisitions()+c.Held == 0 && c.Failed >= maxFailures*len(r.opts.Clients) {
		return notAcquired(r.lastCode, r.lastSays)
	}
	r.sections = append(r.sections, s)
	return nil
}

// slack is the time beyond its hold after which a process counts as hanging.
const slack = 3 * time.Minute

// grace is the time between SIGTERM and SIGKILL.
const grace = 10 * time.Second

// attempt starts the process, follows it to its end, and reports whether its child ran. After
// an error there is no verdict.
func (r *run) attempt(ctx context.Context, n int, command func(Work) []string, p plan) (entered bool, err error) {
	args := command(p.Work)
	a := &process{id: p.ID, client: n, mode: p.Mode, cmd: exec.Command(args[0], args[1:]...)}
	var stderr output
	a.cmd.Env = append(os.Environ(), r.opts.Env...)
	a.cmd.Stderr = &stderr
	a.cmd.WaitDelay = grace // for a process that has left its group, and has stderr

	log, theirs, err := os.Pipe()
	if err != nil {
		return false, err
	}
	defer log.Close()
	a.cmd.Stdout = theirs
	r.mu.Lock()
	err = r.start(a)
	r.mu.Unlock()
	theirs.Close()
	if err != nil {
		return false, fmt.Errorf("%s can't be started: %w", args[0], err)
	}
	_ = log.SetReadDeadline(time.Now().Add(p.Hold + p.stopFor + slack))

	over := make(chan struct{})
	var inflicting sync.WaitGroup
	inflicting.Go(func() { r.inflict(ctx, a, p, over) })
	err = r.follow(a, log)
	if err != nil {
		_ = a.cmd.Process.Kill()
	}
	_ = a.cmd.Wait() // its error is the state
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %s didn't end in %v: %s", ErrUnjudged, p.ID, p.Hold+p.stopFor+slack, lastLine(stderr.text.String()))
	}
	close(over)
	inflicting.Wait()
	r.add(a, judge.Event{Kind: judge.End, Text: strings.TrimSpace(a.cmd.ProcessState.String() + "\n" + stderr.text.String())})
	if err != nil {
		return false, err
	}
	section, err := a.section()
	if err != nil {
		return false, err
	}
	return section.Entered, r.account(section, a.cmd.ProcessState.ExitCode(), stderr.text.String())
}

// follow reads the log of a child to its end. A line that isn't understood is an error, but it reads on, so that
// the writer doesn't block.
func (r *run) follow(a *process, log io.Reader) error {
	var bad error
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if bad != nil {
			continue
		}
		var e judge.Event
		_, e, bad = understand(lines.Bytes(), func(id string) *process { return map[string]*process{a.id: a}[id] })
		if bad != nil {
			continue
		}
		r.add(a, e)
		if e.Kind == judge.In {
			r.count(string(a.mode))
		}
	}
	return errors.Join(bad, lines.Err())
}

// inflict inflicts the planned fault, and ends the process when the run ends.
func (r *run) inflict(ctx context.Context, a *process, p plan, over <-chan struct{}) {
	wait := func(d time.Duration) (in bool) {
		select {
		case <-clock.System{}.After(d):
			return true
		case <-ctx.Done():
		case <-over:
		}
		return false
	}
	if f := p.fault; f != none && wait(p.faultAt) && r.signal(a, string(f), signals[f]) {
		r.count(string(f))
		if f == stop {
			wait(p.stopFor)
			r.signal(a, continued, sigcont)
		}
	}
	select {
	case <-over:
		return
	case <-ctx.Done():
	}
	if sig := signals[term]; sig != nil {
		r.signal(a, "end of the run", sig)
		select {
		case <-over:
			return
		case <-clock.System{}.After(grace):
		}
	}
	_ = a.cmd.Process.Kill()
}

// signal logs a fault and sends its signal. It reports false if this system has no such signal
// or the process has ended.
func (r *run) signal(a *process, fault string, sig os.Signal) bool {
	if sig == nil {
		return false
	}
	r.add(a, judge.Event{Kind: judge.Fault, Text: fault})
	return a.cmd.Process.Signal(sig) == nil
}

const (
	// cleanUpTimeout bounds cleaning up.
	cleanUpTimeout = time.Minute
	// rounds bounds how often cleanUp lists and deletes: a request of a killed process can
	// arrive in between.
	rounds = 3
	// workers bounds the concurrent requests.
	workers = 8
)

// cleanUp deletes all objects with the prefix, even after the context has ended, and returns
// the keys that remain.
func cleanUp(ctx context.Context, o Objects, prefix string) (left []string, err error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanUpTimeout)
	defer cancel()
	for n := 0; ; n++ {
		keys, failed := o.Keys(ctx, prefix)
		if failed != nil || len(keys) == 0 {
			return nil, failed
		}
		if n == rounds {
			return keys, err
		}
		errs := make([]error, len(keys))
		parallel.Each(workers, len(keys), func(i int) { errs[i] = o.Delete(ctx, keys[i]) })
		err = cmp.Or(errs...)
	}
}
