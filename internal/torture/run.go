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
	"github.com/repolock/repolock/internal/history"
	"github.com/repolock/repolock/store"
)

// Options say who contends, for how long, and what is done to them.
type Options struct {
	// Clients, each of which takes the lock over and over.
	Clients []Client
	// Prefix of all that is written, locks and data. It ends in a slash, and goes at
	// the end unless Keep is set. The data goes below its "data/".
	Prefix string
	Keep   bool
	// TTL of the locks.
	TTL time.Duration
	// Duration is how long they contend.
	Duration time.Duration
	// Seed of all that is random: what is planned, but not what comes of it.
	Seed    uint64
	Chances Chances
	// Log gets each event as a line of JSON, if it isn't nil.
	Log io.Writer
	// Progress is told the counts each second, if it isn't nil.
	Progress func(Counts)
	// JudgeFor is how long the verdict may take.
	JudgeFor time.Duration
}

// Client is one that contends.
type Client struct {
	// Command is the command line that does some work under the lock: on its stdout
	// there is the log of Work.Do and nothing else.
	Command func(Work) []string
	// Env is added to the environment.
	Env []string
}

// Report is what came of a run.
type Report struct {
	Verdict history.Verdict
	Counts  Counts
	// Left are the keys that could not be deleted, and LeftBecause says why.
	Left        []string
	LeftBecause error
}

// NobodyError is a run in which nobody got the lock.
type NobodyError struct {
	// Code that the last one exited with, and what it said.
	Code int
	Says string
}

func (e *NobodyError) Error() string { return "nobody got the lock in the first place: " + e.Says }

// Run has the clients contend until the time is over or the context ends, and judges
// what has happened. The store is the one that they
// work in: it is only cleaned up. An error says why the run came to nothing; there is a
// verdict all the same, of which a violation stands.
func Run(ctx context.Context, s store.Store, opts Options) (Report, error) {
	r := &run{opts: opts, chances: opts.Chances.filled()}
	err := r.contend(ctx)
	if err == nil && r.counts.Acquisitions() == 0 {
		err = &NobodyError{r.lastCode, r.lastSays}
	}
	report := Report{Verdict: history.Judge(r.stays, opts.JudgeFor)}
	if err != nil && report.Verdict.Result == history.NotFound {
		report.Verdict.Result, report.Verdict.Why = history.Unknown, err.Error()
	}
	report.Counts = r.counts
	report.Counts.Violations = len(report.Verdict.Violations)
	if !opts.Keep {
		report.Left, report.LeftBecause = cleanUp(ctx, s, opts.Prefix)
	}
	return report, err
}

// run is one run.
type run struct {
	opts    Options
	chances Chances
	cancel  context.CancelCauseFunc // ends the run

	mu       sync.Mutex
	counts   Counts
	stays    []history.Stay
	lastCode int // of the last one that failed to get the lock
	lastSays string
}

// errOver ends a run that went well.
var errOver = errors.New("the run is over")

// contend lets the clients run. The caller's context ends them, and is no error.
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
	var failed failure
	if errors.As(context.Cause(ctx), &failed) {
		return failed.error
	}
	return nil
}

// failure is what makes a run worthless.
type failure struct{ error }

func (r *run) fail(err error) { r.cancel(failure{err}) }

// watch ends the run in time, and tells how it goes on.
func (r *run) watch(ctx context.Context) {
	c := clock.System{}
	end := c.Elapsed() + r.opts.Duration
	for {
		if c.Elapsed() >= end {
			r.cancel(errOver)
		}
		if r.opts.Progress != nil {
			r.opts.Progress(r.counted())
		}
		if clock.Sleep(ctx, c, time.Second) != nil {
			return
		}
	}
}

// counted gives the counts, with the violations that are known.
func (r *run) counted() Counts {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.counts.Violations = len(history.Seen(r.stays))
	return r.counts
}

func (r *run) count(f func(*Counts)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f(&r.counts)
}

// client takes its turns.
func (r *run) client(ctx context.Context, n int, c Client) {
	random := rand.New(rand.NewPCG(r.opts.Seed, uint64(n)))
	for turn := 1; ctx.Err() == nil; turn++ {
		chances, behind := r.mixture()
		p := newPlan(random, turnID(n, turn), r.opts.Prefix+"data/", r.opts.TTL, chances, behind)
		stay, err := r.attempt(ctx, n, c, p)
		if err != nil {
			r.fail(err)
			return
		}
		r.mu.Lock()
		r.stays = append(r.stays, stay)
		r.mu.Unlock()
		if !stay.Entered {
			p.pause *= 2 // it is in somebody's way
		}
		_ = clock.Sleep(ctx, clock.System{}, p.pause)
	}
}

// mixture says what may happen in the next turn, so that what has happened comes to be
// as likely as it shall. behind: too few of the locks that were taken are exclusive.
func (r *run) mixture() (c Chances, behind bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.chances.left(r.counts), float64(r.counts.Exclusive) < r.chances.Exclusive*float64(r.counts.Acquisitions())
}

// saw counts what a child has written down.
func (r *run) saw(mode history.Mode, e history.Event) {
	if e.Kind != history.In {
		return
	}
	r.count(func(c *Counts) {
		if mode == history.Exclusive {
			c.Exclusive++
		} else {
			c.Shared++
		}
	})
}

// hopeless is how many turns a client may fail before anybody has got the lock.
const hopeless = 3

// account counts how a turn ended. The error is one after which nothing can be said
// of the run.
func (r *run) account(s history.Stay, code int, stderr *tail) error {
	if code == CodeUnjudged || code == panicked {
		return fmt.Errorf("%w: %s broke down: %s", ErrUnjudged, s.ID, stderr.last())
	}
	r.count(func(c *Counts) {
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
	})
	r.mu.Lock()
	defer r.mu.Unlock()
	if c := r.counts; c.Acquisitions()+c.Held == 0 && c.Failed >= hopeless*len(r.opts.Clients) {
		return &NobodyError{r.lastCode, r.lastSays}
	}
	return nil
}

// panicked is what a Go program exits with that has panicked.
const panicked = 2

// log writes an event down.
func (r *run) log(e history.Event) {
	if r.opts.Log == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := json.NewEncoder(r.opts.Log).Encode(e); err != nil {
		r.fail(fmt.Errorf("%w: the log can't be written: %w", ErrUnjudged, err))
	}
}
