// Package torture makes real processes compete for one lock, kills and stops them, and lets package judge decide
// whether the lock worked.
//
// Run does so with any client that its caller passes as a command line, and with the objects that the lock protects. It
// knows neither repolock's locks nor its stores. It writes only below one prefix, and deletes all objects there at the
// end.
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

// Options are the options of Run.
type Options struct {
	// Clients compete for the lock, each in a loop. Each function returns the command line that does some work under
	// the lock. The command must print the log of Work.Do to its stdout, and nothing else.
	Clients []func(Work) []string
	// Prefix is the prefix of the keys of all locks and data. It ends in a slash. The data is below data/ in it. Unless
	// Keep is set, Run deletes all objects with the prefix at the end.
	Prefix   string
	Keep     bool          // keep the objects
	TTL      time.Duration // ttl of the locks
	Duration time.Duration // how long the clients compete
	// Seed decides the plan. The same Seed makes the same plan, but the outcome can still differ.
	Seed    uint64
	Chances Chances // how often locks and faults of each kind are tried
	// Conflicts is the number of attempts that must have met another holder. With fewer, or without a lock of each mode,
	// the run has no verdict: too little has happened to judge the lock. If it is 0, each run is judged.
	Conflicts int
	Log       io.Writer    // if it isn't nil, it receives each event as a line of JSON
	Progress  func(Counts) // if it isn't nil, it is called each second
	// Ending, if it isn't nil, is called before each step that Run takes after the clients have competed.
	Ending func(what string)
}

// Counts counts the events of a run. Fields of the JSON are only ever added.
type Counts struct {
	// Shared and Exclusive count the locks under which a child ran.
	Shared    int `json:"shared"`
	Exclusive int `json:"exclusive"`
	// Held counts the attempts that failed because of another holder. Failed counts the attempts that failed for
	// another reason, except for attempts that a fault ended.
	Held   int `json:"held"`
	Failed int `json:"failed"`
	// Conflicts counts the attempts during which another holder certainly had the lock, in a mode that excludes theirs,
	// whether they were refused or waited. The judge counts them, by the children's own records.
	Conflicts int `json:"conflicts"` // known so far
	// Lost counts lost locks, and Resumed locks that were lost and then resumed.
	Lost    int `json:"lost"`
	Resumed int `json:"resumed"`
	// Killed, Stopped and Terminated count the faults.
	Killed     int `json:"killed"`
	Stopped    int `json:"stopped"`
	Terminated int `json:"terminated"`
	// Writes counts puts and deletes that were answered. Unanswered counts requests that weren't.
	Writes     int `json:"writes"`
	Unanswered int `json:"unanswered"`
	Violations int `json:"violations"` // known so far
}

// Acquisitions returns the number of locks that were acquired.
func (c Counts) Acquisitions() int { return c.Shared + c.Exclusive }

// Report is the outcome of Run.
type Report struct {
	Verdict judge.Verdict // whether the lock worked
	Counts  Counts        // events of the whole run
	// Left are the keys that couldn't be deleted, and LeftBecause is the reason.
	Left        []string
	LeftBecause error
}

// Run lets the clients compete until Duration is over or the context ends, and then judges their logs. The clients work
// on o; Run itself only deletes o's objects below Prefix. If a run fails, its report has a verdict too, and a violation
// in it counts.
func Run(ctx context.Context, o Objects, opts Options) (Report, error) {
	r := &run{opts: opts}
	err := r.contend(ctx)
	r.counts.Conflicts = judge.Conflicts(r.sections)
	if err == nil {
		err = r.tooFew()
	}
	r.ending("judging what they did")
	report := Report{Verdict: r.verdict(err), Counts: r.counts}
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

// notAcquired is the error of a run in which no client acquired the lock, and some failed to.
func (r *run) notAcquired() error {
	code := r.lastCode
	if code <= 0 || code >= fault.ExitSignal {
		code = 0
	}
	says := cmp.Or(r.lastSays, fmt.Sprintf("the last one exited with code %d and printed nothing", r.lastCode))
	return &fault.Error{Class: fault.TortureFailed, Err: errors.New("no client got the lock: " + says), Exit: code}
}

// tooFew returns an error if too little has happened to judge the lock.
func (r *run) tooFew() error {
	says, advice := "", ""
	switch c := r.counts; {
	case c.Acquisitions() == 0 && c.Failed > 0:
		return r.notAcquired()
	case c.Acquisitions() == 0:
		says, advice = "no client got the lock: all were still trying when the run ended", fault.Unjudged.Advice
		if c.Held > 0 {
			says = fmt.Sprintf("no client got the lock: each of their %d attempts was refused because the lock was held", c.Held)
		}
	case r.opts.Conflicts == 0:
		return nil
	case c.Exclusive == 0:
		says, advice = fmt.Sprintf("none of the %d locks was exclusive", c.Shared), "try a longer --duration, or fewer --clients"
	case c.Shared == 0:
		says, advice = fmt.Sprintf("none of the %d locks was shared", c.Exclusive), "try a longer --duration, or fewer --clients"
	case c.Conflicts < r.opts.Conflicts:
		says = fmt.Sprintf("only %d of the attempts met another holder, and a verdict needs %d", c.Conflicts, r.opts.Conflicts)
	default:
		return nil
	}
	return fault.Advise(fmt.Errorf("%w: %s", fault.TooFew, says), advice)
}

// verdict judges the sections. If the run has failed, only a violation counts as a verdict.
func (r *run) verdict(failed error) judge.Verdict {
	v := judge.Judge(r.sections)
	if failed != nil && v.Result == judge.NotFound {
		v.Result, v.Why = judge.Unknown, strings.TrimPrefix(failed.Error(), ErrUnjudged.Error()+": ")
	}
	return v
}

// run is the state of Run.
type run struct {
	opts   Options
	cancel context.CancelFunc // ends all clients

	mu       sync.Mutex      // guards the fields below, and opts.Log
	failed   error           // why the run has no result
	sections []judge.Section // that acquired the lock, or were refused because of another holder
	counts   Counts
	waiting  int // clients whose turn waits for the lock
	lastCode int // exit code of the last client that failed to acquire the lock
	lastSays string
}

// fail ends the run without a result. The caller holds mu.
func (r *run) fail(err error) {
	r.failed = cmp.Or(r.failed, err)
	r.cancel()
}

// contend runs the clients. When the caller's context ends, they end, and contend returns no error.
func (r *run) contend(ctx context.Context) error {
	ctx, r.cancel = context.WithCancel(ctx)
	defer r.cancel()
	var all sync.WaitGroup
	for n, c := range r.opts.Clients {
		all.Go(func() { r.client(ctx, n, c) })
	}
	all.Go(func() { r.watch(ctx) })
	all.Wait()
	return r.failed
}

// watch ends the run when Duration is over, and calls Progress and Ending.
func (r *run) watch(ctx context.Context) {
	for end := (clock.System{}).Elapsed() + r.opts.Duration; ctx.Err() == nil; {
		if (clock.System{}).Elapsed() >= end {
			r.cancel()
		}
		if r.opts.Progress != nil {
			r.opts.Progress(r.counted())
		}
		_ = clock.Sleep(ctx, clock.System{}, time.Second)
	}
	r.ending("waiting for the clients to release their locks")
}

// counted returns the counts, with the violations that are known so far.
func (r *run) counted() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Violations, r.counts.Conflicts = len(judge.Judge(r.sections).Violations), judge.Conflicts(r.sections)
	return r.counts
}

// count counts a lock by its mode, or a fault by its kind.
func (r *run) count(what string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c := &r.counts
	*map[string]*int{
		string(judge.Shared): &c.Shared, string(judge.Exclusive): &c.Exclusive, kill: &c.Killed, stop: &c.Stopped, term: &c.Terminated,
	}[what]++
}

// client makes one attempt after another to do work under the lock.
func (r *run) client(ctx context.Context, n int, command func(Work) []string) {
	random := rand.New(rand.NewPCG(r.opts.Seed, uint64(n)))
	for turn := 1; ctx.Err() == nil; turn++ {
		chances, behind := r.chancesNow()
		p := newPlan(random, fmt.Sprintf("c%d-%d", n, turn), r.opts.Prefix+"data/", r.opts.TTL, chances, behind)
		r.waits(p, 1)
		entered, err := r.attempt(ctx, n, command, p)
		r.waits(p, -1)
		if err != nil {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.fail(err)
			return
		}
		if !entered {
			p.pause *= 2 // another client holds the lock
		}
		_ = clock.Sleep(ctx, clock.System{}, p.pause)
	}
}

// waits counts a turn that waits for the lock, from its plan to its end.
func (r *run) waits(p plan, by int) {
	if p.Wait > 0 {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.waiting += by
	}
}

// waiterOf is the number of clients for each client that may wait. If all waited, none would be refused.
const waiterOf = 3

// chancesNow returns the chances of the next turn. It omits faults that were inflicted too often so far, and waiters if
// there are enough. behind reports whether too few of the acquired locks are exclusive.
func (r *run) chancesNow() (c Chances, behind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c = r.opts.Chances.left(r.counts)
	if r.waiting*waiterOf >= len(r.opts.Clients) {
		c.Wait = 0
	}
	return c, float64(r.counts.Exclusive) < r.opts.Chances.Exclusive*float64(r.counts.Acquisitions())
}

// maxFailures is the number of each client's turns that can fail before Run ends because no client has acquired the
// lock.
const maxFailures = 3

// account adds a section that has ended, and counts it. If it returns an error, the run ends without a verdict.
func (r *run) account(s judge.Section, code int, stderr string) error {
	if code == fault.ExitUnjudged || code == panicked {
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
	case code == fault.ExitLost:
		c.Lost++
	case !s.Entered && code == fault.ExitHeld:
		c.Held++
	case !s.Entered && len(s.Faults) == 0:
		c.Failed++
		r.lastCode, r.lastSays = code, lastLine(stderr)
	}
	c.Resumed += strings.Count(stderr, saysResumed)
	if c.Acquisitions()+c.Held == 0 && c.Failed >= maxFailures*len(r.opts.Clients) {
		return r.notAcquired()
	}
	if s.Entered || code == fault.ExitHeld {
		r.sections = append(r.sections, s)
	}
	return nil
}

const (
	// slack is how much longer than its work a process can take before it counts as hanging.
	slack = 3 * time.Minute
	// grace is the time between SIGTERM and SIGKILL.
	grace = 10 * time.Second
)

// attempt starts the process, follows it to its end, and reports whether its child ran. If it returns an error, the run
// ends without a verdict.
func (r *run) attempt(ctx context.Context, n int, command func(Work) []string, p plan) (entered bool, err error) {
	args := command(p.Work)
	a := &process{id: p.ID, client: n, mode: p.Mode, cmd: exec.Command(args[0], args[1:]...), in: make(chan struct{}, 1)}
	var stderr output
	a.cmd.Env = append(os.Environ(), "REPOLOCK_CONFIG=") // the command line has all settings that the client needs
	a.cmd.Stderr = &stderr
	a.cmd.WaitDelay = grace // a process that has left the group might keep stderr open

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
	limit := p.Wait + p.Hold + p.stopFor + slack
	_ = log.SetReadDeadline(time.Now().Add(limit))

	over := make(chan struct{})
	var inflicting sync.WaitGroup
	inflicting.Go(func() { r.inflict(ctx, a, p, over) })
	err = r.follow(a, log)
	if err != nil {
		_ = a.cmd.Process.Kill()
	}
	_ = a.cmd.Wait() // a.cmd.ProcessState has its error
	if errors.Is(err, os.ErrDeadlineExceeded) {
		err = fmt.Errorf("%w: %s didn't end in %v: %s", ErrUnjudged, p.ID, limit, lastLine(stderr.text.String()))
	}
	close(over)
	inflicting.Wait()
	r.add(a, judge.Event{Kind: judge.End, Text: strings.TrimSpace(a.cmd.ProcessState.String() + "\n" + stderr.text.String())})
	if err != nil {
		return false, err
	}
	section, err := judge.Read(a.events)
	if err != nil {
		return false, err
	}
	return section.Entered, r.account(section, a.cmd.ProcessState.ExitCode(), stderr.text.String())
}

// follow reads the log of a child until all its writers have ended. After a line that it can't parse, it still reads
// the rest, so that the child doesn't block.
func (r *run) follow(a *process, log io.Reader) (bad error) {
	lines := bufio.NewScanner(log)
	for lines.Scan() {
		if bad != nil {
			continue
		}
		var e judge.Event
		if e, bad = judge.Parse(lines.Bytes(), func(id string) bool { return id == a.id }); bad != nil {
			continue
		}
		r.add(a, e)
		if e.Kind == judge.In {
			r.count(string(a.mode))
			select {
			case a.in <- struct{}{}:
			default:
			}
		}
	}
	return cmp.Or(bad, lines.Err())
}

// inflict inflicts the planned fault. It ends the process when the run ends.
func (r *run) inflict(ctx context.Context, a *process, p plan, over <-chan struct{}) {
	wait := func(d time.Duration) (passed bool) {
		select {
		case <-clock.System{}.After(d):
			return true
		case <-ctx.Done():
		case <-over:
		}
		return false
	}
	if p.fault != none && p.inChild {
		select {
		case <-a.in:
		case <-ctx.Done():
		case <-over:
		}
	}
	if p.fault != none && wait(p.faultAt) && r.signal(a, p.fault, signals[p.fault]) {
		r.count(p.fault)
		if p.fault == stop {
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

// continued is the text of the event that ends a stop.
const continued = "continue"

// signal logs a fault and sends its signal. It reports false if this system has no such signal, or if the process has
// ended.
func (r *run) signal(a *process, fault string, sig os.Signal) bool {
	if sig == nil {
		return false
	}
	r.add(a, judge.Event{Kind: judge.Fault, Text: fault})
	return a.cmd.Process.Signal(sig) == nil
}

const (
	// cleanUpTimeout bounds cleanUp.
	cleanUpTimeout = time.Minute
	// rounds is how often cleanUp lists and deletes, because the put of a killed process can reach the store after a
	// listing.
	rounds = 3
	// workers is the number of concurrent requests.
	workers = 8
)

// cleanUp deletes all objects with the prefix, even after the context has ended, and returns the remaining keys.
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
