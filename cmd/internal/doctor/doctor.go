// Package doctor tries out what a store does: what the lock's safety rests on, what makes
// the lock faster, and what the store leaves behind. It believes no declaration.
//
// It writes under a prefix of its own, which is no lock's, and deletes all that it wrote,
// also when it fails and when its context ends.
//
// # Caveats
//
// One miss shows that a store isn't fit; no number of hits proves that it is. All requests
// come from one machine. So it doesn't notice a cache in front of other machines only, or a
// condition that is kept only between the programs of one machine. The store can apply a
// write that was under way when the context ended after all was deleted.
package doctor

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/store"
)

// Options are the options of Run.
type Options struct {
	// Prefix is the prefix of the directory with the scratch objects: it ends in a slash, or
	// is empty.
	Prefix string
	// Locks is the prefix of the locks. Run lists it, and writes nothing there.
	Locks string
	// Others are more handles on the same repository. An object that is written through the
	// store must be there through each of them.
	Others []store.Store
	// Clock is the machine's; clock.System if nil.
	Clock clock.Clock
	// Progress is called with what is tried out next, if it isn't nil.
	Progress func(what string)
	// Failed is called when a request has failed and is sent again, for left at most, if it isn't
	// nil. It can be called concurrently.
	Failed func(err error, left time.Duration)
}

// Run tries out a store. An error is returned when the store can't be reached or the context
// has ended, with a report of what was found until then, and when objects are left that can
// be deleted. A store that isn't fit is no error.
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

// trial is one kind of check, with the names of its checks in order.
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

// exam is the state of Run.
type exam struct {
	stores  []store.Store // handles on the repository
	opts    Options
	scratch string
	report  Report

	mu       sync.Mutex                 // guards the rest while requests run in parallel
	took     map[string][]time.Duration // answers, by kind of request
	puts     map[string]int             // that can have been applied, by key
	readings []reading                  // of the clock that listings tell
	stamps   []reading                  // of the clock that stamps objects

	ifNoneMatchIs, ifMatchIs outcome
}

func newExam(s store.Store, opts Options) (*exam, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Prefix != "" && !strings.HasSuffix(opts.Prefix, "/") {
		return nil, fmt.Errorf("%w: the scratch prefix %q doesn't end in a slash", store.ErrInvalidKey, opts.Prefix)
	}
	x := &exam{
		stores: append([]store.Store{s}, opts.Others...),
		opts:   opts,
		// In small letters: it has the form of a lock's name.
		scratch: fmt.Sprintf("%sdoctor-%s-%016x/", opts.Prefix, opts.Clock.Now().UTC().Format("20060102t150405z"), rand.Uint64()),
		took:    map[string][]time.Duration{},
		puts:    map[string]int{},
	}
	if err := store.CheckKey(x.scratch + "x"); err != nil {
		return nil, fmt.Errorf("the scratch prefix %q: %w", opts.Prefix, err)
	}
	x.report = Report{Store: s.Properties().Name, Prefix: x.scratch}
	return x, nil
}

// run goes through the trials until one can't be finished. It reports each check, if only as
// unknown.
func (x *exam) run(ctx context.Context) error {
	var err error
	for _, t := range trials {
		why := "not tried"
		if lacking := x.lacking(t.needs...); len(lacking) > 0 {
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

// settle makes a failed check of an error that says what the store does. Another error ends
// the examination.
func (x *exam) settle(t trial, err error) error {
	i := slices.IndexFunc(t.names, func(name string) bool { return !x.reported(name) })
	if err == nil || i < 0 {
		return err
	}
	return x.permission(t.names[i], "", err)
}

// lacking returns the permissions that weren't found to be granted.
func (x *exam) lacking(needs ...string) []string {
	return slices.DeleteFunc(slices.Clone(needs), func(name string) bool {
		c, found := x.report.Check(name)
		return found && c.Result == OK
	})
}

func (x *exam) reported(name string) bool {
	_, found := x.report.Check(name)
	return found
}

// add adds a check to the report and returns it.
func (x *exam) add(c Check) *Check {
	x.report.Checks = append(x.report.Checks, c)
	return &x.report.Checks[len(x.report.Checks)-1]
}

func (x *exam) progress(what string) {
	if x.opts.Progress != nil {
		x.opts.Progress(what)
	}
}

// reach lists the locks, as each acquirer does.
func (x *exam) reach(ctx context.Context) error {
	objects, err := x.listAll(ctx, 0, x.opts.Locks)
	if err != nil {
		return err
	}
	x.add(Check{Name: Reachable, Result: OK, Detail: fmt.Sprintf("it lists %d lock objects", len(objects))})
	return nil
}
