package torture

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/judge"
)

// Options are the options of a run.
type Options struct {
	Clients []Client // they take the lock over and over
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

// Client is one contender.
type Client struct {
	// Command returns the command line that does some work under the lock. Its stdout must
	// be the log of Work.Do and nothing else.
	Command func(Work) []string
	Env     []string // in addition to ours
}

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
	err := r.contend(ctx)
	if err == nil && r.counts.Acquisitions() == 0 {
		err = r.notAcquired()
	}
	r.ending("judging what they did")
	report := Report{Verdict: judge.Judge(r.sections, opts.JudgeFor)}
	if err != nil && report.Verdict.Result == judge.NotFound {
		report.Verdict.Result, report.Verdict.Why = judge.Unknown, err.Error()
	}
	report.Counts = r.counts
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
	opts    Options
	chances Chances
	cancel  context.CancelCauseFunc // ends the run

	contended time.Duration // how long the clients contended

	mu       sync.Mutex
	counts   Counts
	sections []judge.Section
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
	failed, _ := context.Cause(ctx).(failure)
	return failed.error
}

// failure is the cause that ends a run without a result.
type failure struct{ error }

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
	r.counts.Violations = len(judge.Seen(r.sections))
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
func (r *run) client(ctx context.Context, n int, c Client) {
	random := rand.New(rand.NewPCG(r.opts.Seed, uint64(n)))
	for turn := 1; ctx.Err() == nil; turn++ {
		chances, behind := r.chancesNow()
		p := newPlan(random, fmt.Sprintf("c%d-%d", n, turn), r.opts.Prefix+"data/", r.opts.TTL, chances, behind)
		entered, err := r.attempt(ctx, n, c, p)
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
func (r *run) account(s judge.Section, code int, stderr *output) error {
	if code == CodeUnjudged || code == panicked {
		return fmt.Errorf("%w: %s broke down: %s", ErrUnjudged, s.ID, stderr.last())
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
		r.lastCode, r.lastSays = code, stderr.last()
	}
	c.Resumed += strings.Count(stderr.String(), saysResumed)
	if c.Acquisitions()+c.Held == 0 && c.Failed >= maxFailures*len(r.opts.Clients) {
		return notAcquired(r.lastCode, r.lastSays)
	}
	r.sections = append(r.sections, s)
	return nil
}

// log writes an event to the log.
func (r *run) log(e judge.Event) {
	if r.opts.Log == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.NewEncoder(r.opts.Log).Encode(e); err != nil {
		r.fail(fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err))
	}
}
