// Package doctor tries out what a store does: what the lock's safety rests on,
// what makes the lock faster, and what it leaves behind. It believes nothing
// that the store declares of itself.
//
// It writes under a prefix of its own, which is no lock's, and deletes what it
// wrote: when it is done, when it fails, and when its context ends.
//
// # Caveats
//
// One miss shows that a store isn't fit; no number of hits proves that it is.
// All requests come from one machine, so that a cache that only other machines
// are given, or a condition that is kept between the programs of one machine
// only, isn't noticed. A write that was under way when the context ended may be
// applied after all was deleted.
package doctor

import (
	"context"
	"crypto/rand"
	"fmt"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// Options say where and with what. Prefix has to be set.
type Options struct {
	// Prefix is where the scratch objects go, in a directory of their own: it
	// ends in a slash, or is empty.
	Prefix string
	// Locks is the prefix that the locks have. It is listed, as everyone does
	// who takes a lock, and nothing is written there.
	Locks string
	// Others are more handles on the same repository. What is written through the
	// store must be there through each of them.
	Others []store.Store
	// Clock is the machine's; clock.System if nil.
	Clock clock.Clock
	// Progress is told what is being tried out, if it isn't nil.
	Progress func(what string)
}

// Run tries out a store. The error says why it had to break off: the store
// can't be reached, or the context has ended; the report then has what was found
// until that, or that objects are left which may be deleted. That a store isn't fit is no error.
func Run(ctx context.Context, s store.Store, opts Options) (Report, error) {
	x, err := newExam(s, opts)
	if err != nil {
		return Report{}, err
	}
	err = x.run(ctx)
	x.progress("cleaning up")
	x.cleanUp(ctx)
	x.conclude(err)
	if err == nil {
		err = x.leftOver()
	}
	return x.report, err
}

// trial is one kind of check. It reports under its names, in their order.
type trial struct {
	what  string
	names []string
	needs []string // permissions, by the names of their checks
	run   func(*exam, context.Context) error
}

var trials = []trial{
	{"whether it can be reached", []string{Reachable}, nil, (*exam).reach},
	{"permissions", []string{List, Write, Read, Overwrite, Delete}, nil, (*exam).permissions},
	{"list after write", []string{ListAfterWrite}, []string{List, Write}, (*exam).listAfterWrite},
	{"if-none-match", []string{IfNoneMatch, IfNoneMatchRace, IfNoneMatchGone}, []string{Write, Read}, (*exam).ifNoneMatch},
	{"if-match", []string{IfMatch, IfMatchRace, IfMatchAbsent}, []string{Write, Read, Overwrite}, (*exam).ifMatch},
	{"conditional delete", []string{ConditionalDelete}, []string{Write, Read, Delete}, (*exam).conditionalDelete},
	{"versions", []string{Versioning, ObjectLock}, nil, (*exam).describe},
	{"clocks", []string{OneClock}, []string{List, Write}, (*exam).oneClock},
	{"clocks", []string{ClockOffset}, []string{List}, (*exam).clockOffset},
}

// exam is one run.
type exam struct {
	stores  []store.Store // handles on the repository
	opts    Options
	clock   clock.Clock
	scratch string
	report  Report

	latencies latencies
	readings  readings // of the clock that listings tell
	stamps    readings // of the clock that stamps objects
	written   ledger
	goesOn    func() // of cleaning up

	ifNoneMatchIs, ifMatchIs outcome
}

func newExam(s store.Store, opts Options) (*exam, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Prefix != "" && !strings.HasSuffix(opts.Prefix, "/") {
		return nil, fmt.Errorf("%w: the scratch prefix %q doesn't end in a slash", store.ErrInvalidKey, opts.Prefix)
	}
	id := make([]byte, 8)
	if _, err := rand.Read(id); err != nil {
		return nil, err
	}
	x := &exam{
		stores: append([]store.Store{s}, opts.Others...),
		opts:   opts,
		clock:  opts.Clock,
		// In small letters: it has the form of a lock's name.
		scratch: fmt.Sprintf("%sdoctor-%s-%x/", opts.Prefix, opts.Clock.Now().UTC().Format("20060102t150405z"), id),
	}
	if err := store.CheckKey(x.scratch + "x"); err != nil {
		return nil, fmt.Errorf("the scratch prefix %q: %w", opts.Prefix, err)
	}
	x.report = Report{Store: s.Properties().Name, Prefix: x.scratch}
	return x, nil
}

// run goes through the trials until one can't be finished. Every check is
// reported, if only as unknown.
func (x *exam) run(ctx context.Context) error {
	var err error
	for _, t := range trials {
		why := "not tried"
		if lacking := x.lacking(t.needs); len(lacking) > 0 {
			why = "not tried: it needs to " + strings.Join(lacking, " and ")
		} else if err == nil {
			x.progress(t.what)
			err = x.settle(t, t.run(x, ctx))
		}
		for _, name := range t.names {
			if !x.reported(name) {
				x.add(Check{Name: name, Result: Unknown, Detail: why})
			}
		}
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// settle makes a failed check of an error that says what the store does. Any other
// means that nothing more can be found out.
func (x *exam) settle(t trial, err error) error {
	if err == nil || !settled(err) {
		return err
	}
	for _, name := range t.names {
		if !x.reported(name) {
			x.add(Check{Name: name, Result: Fail, Refused: refused(err), Detail: err.Error()})
			return nil
		}
	}
	return err
}

// lacking gives those permissions that weren't found to be granted.
func (x *exam) lacking(needs []string) []string {
	return slices.DeleteFunc(slices.Clone(needs), func(name string) bool {
		c, found := x.report.Check(name)
		return found && c.Result == OK
	})
}

func (x *exam) reported(name string) bool {
	_, found := x.report.Check(name)
	return found
}

func (x *exam) add(c Check) { x.report.Checks = append(x.report.Checks, c) }

func (x *exam) progress(what string) {
	if x.opts.Progress != nil {
		x.opts.Progress(what)
	}
}

// reach lists the locks, as everyone does who takes one.
func (x *exam) reach(ctx context.Context) error {
	objects, err := x.listAll(ctx, 0, x.opts.Locks)
	if err != nil {
		return err
	}
	x.add(Check{Name: Reachable, Result: OK, Detail: fmt.Sprintf("it lists %d lock objects", len(objects))})
	return nil
}
