// Package doctor tries out a store: the guarantees that the lock's safety needs, the conditions that make
// the lock faster, and the server's versions and clocks. It believes no declaration.
//
// It writes under a prefix of its own, where no lock is. It deletes all objects that it wrote,
// also when it fails and when its context ends.
//
// # Caveats
//
// One miss shows that a store isn't fit; no number of hits proves that it is. All requests
// come from one machine. So doctor doesn't notice a cache in front of other machines only, or a
// condition that holds only between the programs of one machine. A write that was under way when the
// context ended can reach the store after the cleanup.
package doctor

import (
	"context"
	"errors"
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
	// Prefix is the prefix of the directory with the scratch objects. It ends in a slash.
	Prefix string
	// Locks is the prefix of the locks. Run lists it, and writes nothing there.
	Locks string
	// IsLock reports whether a key below Locks belongs to a lock, and not to a file of another program. If IsLock is
	// nil, all keys belong to locks.
	IsLock func(key string) bool
	// Others are more handles on the same repository. An object that is written through the
	// store must be visible through each of them.
	Others []store.Store
	// Clock is the machine's clock. Nil is clock.System.
	Clock clock.Clock
	// Progress, if not nil, gets the next step of the examination.
	Progress func(what string)
	// Failed, if not nil, is called when a request has failed and is sent again. left bounds the time of further
	// tries. Failed can be called concurrently.
	Failed func(err error, left time.Duration)
}

// Run tries out a store. A store that isn't fit is no error. If the store can't be reached or the context
// ends, Run returns an error, and a report of the checks until then. It also returns an error if objects are
// left that doctor is allowed to delete.
func Run(ctx context.Context, s store.Store, opts Options) (Report, error) {
	x, err := newExam(s, opts)
	if err != nil {
		return Report{}, err
	}
	err = x.run(ctx)
	x.opts.Progress("cleaning up")
	x.cleanUp(ctx)
	x.conclude(err)
	if n := len(x.report.Left); n > 0 && err == nil && x.granted(Delete) {
		err = fmt.Errorf("%d objects below %q are left, because the store didn't delete them in time: delete them", n, x.scratch)
	}
	return x.report, err
}

// Both tries out two stores that should show one repository, such as two gateways. Each must list at once the objects
// that are written through the other. The report describes writes through s, and its Also describes writes through
// also. opts.Others are more handles on s.
func Both(ctx context.Context, s, also store.Store, opts Options) (Report, error) {
	there, back := opts, opts
	there.Others = append(slices.Clone(opts.Others), also)
	back.Others = []store.Store{s}
	report, err := Run(ctx, s, there)
	if err != nil && !differentPlaces(report, err) {
		return report, err
	}
	other, err := Run(ctx, also, back)
	report.Also = &other
	if differentPlaces(other, err) {
		err = nil
	}
	return report, err
}

// differentPlaces reports whether an examination ended because the two stores show different repositories. The report
// has a failed check then.
func differentPlaces(r Report, err error) bool {
	c, _ := r.Check(ListAfterWrite)
	return c.Result == Fail && errors.Is(err, store.ErrNotFound)
}

// checks are all checks in order: the name, the text for Progress, and the permissions that the check needs. A check
// with an after is skipped unless the after check has succeeded. try returns a zero Check if there is nothing to
// try. A settled error is a failed check, and any other error ends the examination.
var checks = []struct {
	name, what, after string
	needs             []string
	try               func(*exam, context.Context) (Check, error)
}{
	{Reachable, "whether it can be reached", "", nil, (*exam).reach},
	{List, "permissions", "", nil, (*exam).list},
	{Write, "permissions", "", nil, (*exam).write},
	{Read, "permissions", "", nil, (*exam).read},
	{Overwrite, "permissions", "", nil, (*exam).overwrite},
	{Delete, "permissions", "", nil, (*exam).delete},
	{ListAfterWrite, "list after write", "", []string{List, Write}, (*exam).listAfterWrite},
	{IfNoneMatch, "if-none-match", "", []string{Write, Read}, ifNoneMatch.try},
	{IfNoneMatchRace, "if-none-match", "", []string{Write, Read}, (*exam).ifNoneMatchRace},
	{IfNoneMatchGone, "if-none-match", IfNoneMatch, []string{Write, Read, Delete}, ifNoneMatchGone.try},
	{IfMatch, "if-match", "", []string{Write, Read, Overwrite}, ifMatch.try},
	{IfMatchRace, "if-match", IfMatch, []string{Write, Read, Overwrite}, (*exam).ifMatchRace},
	{IfMatchAbsent, "if-match", IfMatch, []string{Write, Read, Overwrite}, (*exam).ifMatchAbsent},
	{ConditionalDelete, "conditional delete", "", []string{Write, Read, Delete}, (*exam).conditionalDelete},
	{Versioning, "versions", "", nil, (*exam).versioning},
	{ObjectLock, "versions", "", nil, (*exam).objectLock},
	{OneClock, "clocks", "", []string{List, Write}, (*exam).oneClock},
	{ClockOffset, "clocks", "", []string{List}, (*exam).clockOffset},
}

// exam is the state of Run.
type exam struct {
	stores  []store.Store // handles on the repository
	opts    Options
	scratch string
	report  Report
	is      store.Description

	mu       sync.Mutex                 // guards the rest while requests run in parallel
	took     map[string][]time.Duration // round trips, by kind of request
	puts     map[string]int             // the number of puts that the store can have applied, by key
	readings []reading                  // of the clock that dates listings
	stamps   []reading                  // of the clock that stamps objects
}

func newExam(s store.Store, opts Options) (*exam, error) {
	if opts.Clock == nil {
		opts.Clock = clock.System{}
	}
	if opts.Progress == nil {
		opts.Progress = func(string) {}
	}
	x := &exam{
		stores: append([]store.Store{s}, opts.Others...),
		opts:   opts,
		// The time is in small letters, because the prefix must have the form of a lock's name.
		scratch: fmt.Sprintf("%sdoctor-%s-%016x/", opts.Prefix, opts.Clock.Now().UTC().Format("20060102t150405z"), rand.Uint64()),
		took:    map[string][]time.Duration{}, puts: map[string]int{},
	}
	if err := store.CheckKey(x.scratch + "x"); err != nil {
		return nil, fmt.Errorf("the scratch prefix %q: %w", opts.Prefix, err)
	}
	x.report = Report{Store: s.Properties().Name, Prefix: x.scratch}
	return x, nil
}

// run makes the checks, until one ends the examination. It reports the remaining ones as unknown.
func (x *exam) run(ctx context.Context) (err error) {
	what := ""
	for _, check := range checks {
		var c Check
		if lacking := slices.DeleteFunc(slices.Clone(check.needs), x.granted); len(lacking) > 0 {
			c = Check{Result: Unknown, Detail: "not tried: it needs to " + strings.Join(lacking, " and ")}
		} else if err == nil && (check.after == "" || x.granted(check.after)) {
			if what != check.what {
				what = check.what
				x.opts.Progress(what)
			}
			switch c, err = check.try(x, ctx); {
			case settled(err):
				c, err = Check{Result: Fail, Refused: refused(err), credentials: errors.Is(err, store.ErrCredentials), Detail: err.Error()}, nil
			case err != nil && ctx.Err() == nil:
				c = Check{Result: Unknown, Detail: "tried, without a result: " + err.Error()}
			case err != nil:
				c = Check{}
			}
		}
		if c.Result == "" {
			c = Check{Result: Unknown, Detail: "not tried"}
		}
		c.Name = check.name
		x.report.Checks = append(x.report.Checks, c)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// granted reports whether the check of a permission has succeeded.
func (x *exam) granted(name string) bool {
	c, _ := x.report.Check(name)
	return c.Result == OK
}

// reach lists the locks, as each acquirer does.
func (x *exam) reach(ctx context.Context) (Check, error) {
	objects, err := x.listAll(ctx, 0, x.opts.Locks)
	var strays []string
	for _, o := range objects {
		if x.opts.IsLock != nil && !x.opts.IsLock(o.Key) {
			strays = append(strays, o.Key)
		}
	}
	c := passed(fmt.Sprintf("it lists %d lock objects", len(objects)-len(strays)))
	if len(strays) > 0 {
		c.Detail += fmt.Sprintf("; it ignores %d files of other programs: %s", len(strays), brief(strays))
	}
	return c, err
}

// maxNamed is the number of keys that brief names.
const maxNamed = 3

// brief names the first keys, and the number of the others.
func brief(keys []string) string {
	more := ""
	if n := len(keys) - maxNamed; n > 0 {
		more = fmt.Sprintf(", and %d more", n)
	}
	return strings.Join(keys[:min(maxNamed, len(keys))], ", ") + more
}

func passed(detail string) Check { return Check{Result: OK, Detail: detail} }
