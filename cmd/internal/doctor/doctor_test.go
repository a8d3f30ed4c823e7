package doctor_test

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

const (
	prefix = "index/locks/"
	locks  = "index/lock."
)

// examine examines a store.
func examine(ctx context.Context, s store.Store, opts doctor.Options) (doctor.Report, error) {
	opts.Prefix, opts.Locks = prefix, locks
	return doctor.Run(ctx, s, opts)
}

// run examines a store. The examination must complete.
func run(t *testing.T, s store.Store, opts doctor.Options) doctor.Report {
	t.Helper()
	report, err := examine(t.Context(), s, opts)
	assert.OK(t, err)
	return report
}

// check returns a check of the report, which must be there.
func check(t *testing.T, r doctor.Report, name string) doctor.Check {
	t.Helper()
	c, found := r.Check(name)
	assert.Need(t, found, "no check %q in %+v", name, r.Checks)
	return c
}

type results = map[string]doctor.Result

const (
	ok      = doctor.OK
	warn    = doctor.Warn
	fail    = doctor.Fail
	unknown = doctor.Unknown
)

// expect compares results by name. Unnamed checks must be ok or unknown.
func expect(t *testing.T, r doctor.Report, want results) {
	t.Helper()
	for _, c := range r.Checks {
		switch w, named := want[c.Name]; {
		case named && c.Result != w:
			t.Errorf("%s: %s, want %s: %s", c.Name, c.Result, w, c.Detail)
		case !named && c.Result != ok && c.Result != unknown:
			t.Errorf("%s: %s: %s", c.Name, c.Result, c.Detail)
		}
	}
	for name := range want {
		check(t, r, name)
	}
}

func fitness(t *testing.T, r doctor.Report, want doctor.Fitness) {
	t.Helper()
	assert.That(t, r.Verdict.Fitness == want, "%+v, want %s", r.Verdict, want)
	assert.That(t, (r.Plan != nil) == (want == doctor.Fit), "plan: %+v", r.Plan)
}

// left returns the keys of all objects. The report must name each of them.
func left(t *testing.T, m *memory.Store, r doctor.Report) []string {
	t.Helper()
	keys, err := store.Keys(t.Context(), m, "")
	assert.OK(t, err)
	for _, key := range keys {
		assert.That(t, slices.Contains(r.Left, key), "%s is left, and not named", key)
	}
	return keys
}

// clean checks that no object is left, nor named as left.
func clean(t *testing.T, m *memory.Store, r doctor.Report) {
	t.Helper()
	got := left(t, m, r)
	assert.That(t, len(got)+len(r.Left) == 0, "left: %v, named: %v", got, r.Left)
}

// tapped returns a good store behind hooks, and the store.
func tapped() (*hookstore.Store, *memory.Store) {
	m := memory.New(memory.Options{})
	return &hookstore.Store{Store: m}, m
}

// flawed is a store that breaks the contract as its fields say.
type flawed struct {
	*memory.Store
	amend   func(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error // before each put
	forgets bool                                                                                 // puts are answered, and not carried out
	stays   bool                                                                                 // overwrites are answered, and not carried out
	untags  bool                                                                                 // the answer to a put has no ETag
	tagless bool                                                                                 // no answer has an ETag
	garbles bool
	shows   func(*store.Page)
	keeps   bool // deleted objects
}

func (s *flawed) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	dawdle()
	if s.forgets {
		return store.Object{ETag: "x"}, nil
	}
	if s.stays && opts == (store.PutOptions{}) && !missing(ctx, s.Store, key) {
		return store.Object{ETag: "x"}, nil
	}
	if s.amend != nil {
		if err := s.amend(ctx, s.Store, key, &opts); err != nil {
			return store.Object{}, &store.Error{Op: "put", Key: key, Err: err}
		}
	}
	o, err := s.Store.Put(ctx, key, body, opts)
	if s.untags || s.tagless {
		o.ETag = ""
	}
	return o, err
}

func (s *flawed) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	dawdle()
	body, o, err := s.Store.Get(ctx, key, limit)
	if s.tagless {
		o.ETag = ""
	}
	if s.garbles && len(body) > 0 {
		body[0]++
	}
	return body, o, err
}

func (s *flawed) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	dawdle()
	page, err := s.Store.List(ctx, prefix, cursor)
	if s.shows != nil {
		s.shows(&page)
	}
	return page, err
}

func (s *flawed) Delete(ctx context.Context, key string) error {
	dawdle()
	if s.keeps {
		return nil
	}
	return s.Store.Delete(ctx, key)
}

func missing(ctx context.Context, m *memory.Store, key string) bool {
	_, _, err := m.Get(ctx, key, 1<<20)
	return errors.Is(err, store.ErrNotFound)
}

// dawdle takes time, as a request does, in which the others can race.
func dawdle() { time.Sleep(time.Millisecond) }

// lagging answers a put before a listing shows it: it hides every tenth new object from the next
// two listings.
func lagging() flawed {
	var mu sync.Mutex
	hidden := map[string]int{}
	return flawed{
		amend: func(_ context.Context, _ *memory.Store, key string, _ *store.PutOptions) error {
			mu.Lock()
			defer mu.Unlock()
			if _, known := hidden[key]; !known {
				hidden[key] = len(hidden) % 10 / 9 * 2
			}
			return nil
		},
		shows: func(page *store.Page) {
			mu.Lock()
			defer mu.Unlock()
			page.Objects = slices.DeleteFunc(page.Objects, func(o store.Object) bool {
				hidden[o.Key]--
				return hidden[o.Key] >= 0
			})
		},
	}
}

// gap deletes an object before it is overwritten.
func gap(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error {
	if *opts != (store.PutOptions{}) {
		return nil
	}
	defer dawdle()
	return m.Delete(ctx, key)
}

// racy checks a condition, and then writes.
func racy(absent, match bool) flawed {
	return flawed{amend: func(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error {
		if !(opts.IfAbsent && absent || opts.IfMatch != "" && match) {
			return nil
		}
		_, now, err := m.Get(ctx, key, 1<<20)
		if opts.IfAbsent && err == nil || opts.IfMatch != "" && now.ETag != opts.IfMatch {
			return store.ErrPrecondition
		}
		*opts = store.PutOptions{}
		dawdle()
		return nil
	}}
}

// deaf ignores conditions.
func deaf(_ context.Context, _ *memory.Store, _ string, opts *store.PutOptions) error {
	*opts = store.PutOptions{}
	return nil
}

// answers gives one answer to all conditional puts.
func answers(err error) flawed {
	return flawed{amend: func(_ context.Context, _ *memory.Store, _ string, opts *store.PutOptions) error {
		if *opts == (store.PutOptions{}) {
			return nil
		}
		return err
	}}
}

// creates takes If-Match on a missing key, as MinIO before September 2025 does.
func creates(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error {
	if missing(ctx, m, key) {
		opts.IfMatch = ""
	}
	return nil
}

// revives takes If-Match with the ETag of a deleted object.
func revives(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error {
	if strings.Trim(opts.IfMatch, "0") == "" { // the ETag of no object
		return nil
	}
	return creates(ctx, m, key, opts)
}

// noSuchKey refuses If-Match on a missing key because the key is missing.
func noSuchKey(ctx context.Context, m *memory.Store, key string, opts *store.PutOptions) error {
	if opts.IfMatch != "" && missing(ctx, m, key) {
		return store.ErrNotFound
	}
	return nil
}

// clockAhead dates listings by another clock than objects.
func clockAhead(by time.Duration) flawed {
	return flawed{shows: func(page *store.Page) { page.Now = page.Now.Add(by) }}
}

// TestStores: doctor finds each fault of a store, and reports no other. Its text agrees with repolock's behaviour.
func TestStores(t *testing.T) {
	claimed := memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed}
	relied := doctor.Plan{Shared: 2, Exclusive: 2, Renewal: "if_match", Release: "delete", Fence: true, Conditions: doctor.Relied}
	proven := doctor.Plan{Shared: 2, Exclusive: 4, Renewal: "look_and_put", Release: "delete", Conditions: doctor.Proven}
	unreliable := proven
	unreliable.Conditions = doctor.Unreliable
	lacking := unreliable
	lacking.Exclusive = 5 // every acquire finds it out, at the cost of a round trip
	var unfit doctor.Plan
	const twoTrips = "a lock is renewed by a look and a put, in 2 round trips"
	for name, test := range map[string]struct {
		opts memory.Options
		flaw flawed
		want results
		plan doctor.Plan
		says string // a line, or the beginning of one
	}{
		"good": {memory.Options{}, flawed{}, results{doctor.IfMatchRace: ok, doctor.IfNoneMatchRace: ok}, relied,
			"a lock is renewed by a put with If-Match, in 1 round trip\n"},
		"claimed": {memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed, Precision: time.Second}, flawed{}, nil, proven,
			twoTrips + "; the put has If-Match as soon as the store has proven to the process that it obeys If-Match\n"},
		"ignored": {memory.Options{IfAbsent: memory.Ignored, IfMatch: memory.Ignored}, flawed{},
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: warn, doctor.IfMatch: warn, doctor.IfMatchRace: unknown, doctor.ConditionalDelete: warn},
			unreliable, "ignored: 160 of 160 won, but only one in each of 20 rounds should have; repolock doesn't rely on it\n"}, // users don't believe it without numbers
		"lacked": {memory.Options{IfAbsent: memory.Lacked, IfMatch: memory.Lacked}, flawed{},
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: unknown, doctor.IfMatch: warn, doctor.IfMatchRace: unknown, doctor.ConditionalDelete: warn},
			unreliable, ""},
		"claimed and lacked": {claimed, answers(store.ErrConditionUnsupported), results{doctor.IfNoneMatch: warn, doctor.IfMatch: warn}, lacking,
			"the store has no such condition; repolock doesn't rely on it\n"},
		"claimed and denied":      {claimed, answers(store.ErrPermission), results{doctor.IfNoneMatch: warn, doctor.IfMatch: warn}, lacking, ""},
		"claimed and in conflict": {claimed, answers(store.ErrConflict), results{doctor.IfNoneMatch: warn, doctor.IfMatch: warn}, lacking, ""},
		"denied, declared as kept": {memory.Options{}, answers(store.ErrPermission),
			results{doctor.IfNoneMatch: fail, doctor.IfNoneMatchRace: unknown, doctor.IfMatch: fail, doctor.IfMatchRace: unknown}, unfit, ""},
		"markers": {memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed, Markers: true}, flawed{},
			results{doctor.IfNoneMatchGone: warn}, unreliable, ""},
		"no time": {memory.Options{NoTime: true, Precision: time.Second}, flawed{},
			results{doctor.OneClock: unknown, doctor.ClockOffset: ok}, relied, ""},
		"no store clock": {memory.Options{NoStoreClock: true}, flawed{}, results{doctor.OneClock: warn}, relied, ""},
		"tagless": {claimed, flawed{tagless: true}, results{doctor.IfMatch: warn}, unreliable,
			"the store has no such condition (conditional put not supported: the store reports no ETag); repolock doesn't rely on it\n"},
		"small pages": {memory.Options{PageSize: 7}, flawed{}, nil, relied, ""},
		"lagging":     {memory.Options{}, lagging(), results{doctor.ListAfterWrite: fail}, unfit, ""},
		"gap":         {memory.Options{}, flawed{amend: gap}, results{doctor.ListAfterWrite: fail}, unfit, ""},
		"racy, declared as kept": {memory.Options{}, racy(true, true),
			results{doctor.IfNoneMatchRace: fail, doctor.IfMatchRace: fail}, unfit, ""},
		"racy absent, declared as kept": {memory.Options{IfMatch: memory.Claimed}, racy(true, false),
			results{doctor.IfNoneMatchRace: fail, doctor.IfMatchRace: ok}, unfit, ""},
		"racy match, declared as kept": {memory.Options{IfAbsent: memory.Claimed}, racy(false, true),
			results{doctor.IfNoneMatchRace: ok, doctor.IfMatchRace: fail}, unfit, ""},
		"racy":        {claimed, racy(true, true), results{doctor.IfNoneMatchRace: warn, doctor.IfMatchRace: warn}, unreliable, ""},
		"racy absent": {claimed, racy(true, false), results{doctor.IfNoneMatchRace: warn, doctor.IfMatchRace: ok}, unreliable, ""},
		"racy match":  {claimed, racy(false, true), results{doctor.IfNoneMatchRace: ok, doctor.IfMatchRace: warn}, unreliable, ""},
		"deaf, declared as kept": {memory.Options{}, flawed{amend: deaf},
			results{doctor.IfNoneMatch: fail, doctor.IfNoneMatchRace: fail, doctor.IfMatch: fail, doctor.IfMatchRace: unknown}, unfit,
			"ignored: a put over an object was carried out; but the store is declared to keep it\n"},
		"stiff": {claimed, answers(store.ErrPrecondition),
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: warn, doctor.IfMatch: warn, doctor.IfMatchRace: unknown}, unreliable, ""},
		"garbles": {memory.Options{}, flawed{garbles: true}, results{doctor.Read: fail}, unfit, ""},
		"keeps":   {memory.Options{}, flawed{keeps: true}, results{doctor.Delete: fail}, unfit, ""},
		"forgets": {claimed, flawed{forgets: true}, results{doctor.Read: fail, doctor.ListAfterWrite: fail}, unfit, ""},
		"stays": {claimed, flawed{stays: true}, results{doctor.Read: ok, doctor.Overwrite: fail, doctor.Delete: ok}, unfit,
			"the store confirmed a request that it didn't carry out: "},
		"fast clock": {memory.Options{}, clockAhead(time.Minute), results{doctor.OneClock: warn, doctor.ClockOffset: warn}, relied, ""},
		"slow clock": {memory.Options{}, clockAhead(-time.Minute), results{doctor.OneClock: warn, doctor.ClockOffset: warn}, relied, ""},
		"creates": {claimed, flawed{amend: creates}, results{doctor.IfMatch: ok, doctor.IfMatchRace: ok, doctor.IfMatchAbsent: warn}, unreliable,
			"the server accepts If-Match on a key that isn't there (MinIO before September 2025): repolock looks before each put instead\n"},
		"creates, declared as kept": {memory.Options{}, flawed{amend: creates},
			results{doctor.IfMatch: ok, doctor.IfMatchRace: ok, doctor.IfMatchAbsent: fail}, unfit,
			"the server accepts If-Match on a key that isn't there (MinIO before September 2025)" +
				", so that a refresh would put a broken lock back: leave conditions=kept out of the URL"},
		"creates, looks": {claimed, flawed{amend: creates}, results{doctor.IfMatchAbsent: warn}, unreliable, twoTrips + "\n"},
		"revives":        {claimed, flawed{amend: revives}, results{doctor.IfMatchAbsent: warn}, unreliable, ""},
		"no such key":    {claimed, flawed{amend: noSuchKey}, results{doctor.IfMatchAbsent: ok}, proven, ""},
		"untagged":       {claimed, flawed{untags: true}, results{doctor.IfMatch: ok, doctor.IfMatchRace: ok}, proven, ""},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *hookstore.Store, _ *memory.Store, opts doctor.Options) {
				s, m := test.flaw, memory.New(test.opts)
				s.Store = m
				opts.Others = []store.Store{&s}
				r := run(t, &s, opts)
				expect(t, r, test.want)
				if test.plan.Shared == 0 {
					fitness(t, r, doctor.Unfit)
				} else {
					fitness(t, r, doctor.Fit)
				}
				lines := []string{""}
				for _, c := range r.Checks {
					lines = append(lines, c.Detail)
				}
				if r.Plan != nil {
					assert.That(t, len(r.Plan.Says) != 0, "lacks the plan")
					lines, r.Plan.Says = append(lines, r.Plan.Says...), nil
					assert.Equal(t, *r.Plan, test.plan)
				}
				if name == "gap" {
					missed := check(t, r, doctor.ListAfterWrite).Counts["missed_while_overwritten"]
					assert.That(t, missed > 0, "no listing missed an object that was being overwritten")
				}
				says := strings.Join(lines, "\n") + "\n"
				assert.That(t, strings.Contains(says, "\n"+test.says), "it doesn't say %q:%s", test.says, says)
				if test.flaw.keeps {
					keys := left(t, m, r)
					assert.That(t, len(keys) != 0 && len(keys) == len(r.Left), "%d are left, %d are named", len(keys), len(r.Left))
					return
				}
				clean(t, m, r)
			})
		})
	}
}

// TestWrongAnswers: a check of a permission says in which way the store's answer was wrong.
func TestWrongAnswers(t *testing.T) {
	for name, c := range map[string]struct {
		flaw flawed
		says string
	}{
		doctor.Delete:    {flawed{keeps: true}, "was deleted, and is still there"},
		doctor.Read:      {flawed{forgets: true}, "was written, and isn't there"},
		doctor.Overwrite: {flawed{stays: true}, "has another body than was written"},
	} {
		inBubble(t, func(t *testing.T, _ *hookstore.Store, m *memory.Store, opts doctor.Options) {
			c.flaw.Store = m
			got := check(t, run(t, &c.flaw, opts), name)
			assert.That(t, got.Result == fail && strings.Contains(got.Detail, c.says), "%s: %+v", name, got)
		})
	}
}

// TestStrays: files of other programs beside the locks are counted apart, and each step is shown once.
func TestStrays(t *testing.T) {
	inBubble(t, func(t *testing.T, s *hookstore.Store, m *memory.Store, opts doctor.Options) {
		for _, key := range []string{"exclusive", "README"} {
			assert.OK(t, assert.Err(m.Put(t.Context(), locks+key, nil, store.PutOptions{})))
		}
		var steps []string
		opts.Progress = func(what string) { steps = append(steps, what) }
		assert.Equal(t, check(t, run(t, s, opts), doctor.Reachable).Detail, "it lists 2 lock objects")
		steps = slices.DeleteFunc(steps, func(s string) bool { return strings.HasPrefix(s, "cleaning up") })
		assert.Equal(t, steps, slices.Compact(slices.Clone(steps)))
		opts.IsLock = func(key string) bool { return key == locks+"exclusive" }
		assert.Equal(t, check(t, run(t, s, opts), doctor.Reachable).Detail,
			"it lists 1 lock objects; it ignores 1 files of other programs: index/lock.README")
	})
}

// TestHandles: an object that is written through one handle must be visible through the other. A failure of this
// wins over a lacking permission.
func TestHandles(t *testing.T) {
	s, _ := tapped()
	for _, want := range []results{{doctor.Read: fail, doctor.ListAfterWrite: fail}, {doctor.Reachable: fail, doctor.Read: fail, doctor.ListAfterWrite: fail}} {
		r := run(t, s, doctor.Options{Others: []store.Store{memory.New(memory.Options{})}})
		expect(t, r, want)
		fitness(t, r, doctor.Unfit)
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Key == locks {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
			}
			return nil
		})
	}
}

// TestReport: every check is reported, in order, and JSON has the names that scripts use. No object of doctor looks like
// a lock.
func TestReport(t *testing.T) {
	s, _ := tapped()
	var put sync.Map
	s.Before(func(_ context.Context, r hookstore.Request) error {
		if r.Op == "put" {
			put.Store(r.Key, true)
		}
		return nil
	})
	report := run(t, s, doctor.Options{})
	assert.That(t, strings.HasPrefix(report.Prefix, prefix+"doctor-"), "below %q", report.Prefix)
	written := 0
	for key := range put.Range {
		written++
		assert.That(t, strings.HasPrefix(key.(string), report.Prefix) && !strings.Contains(key.(string), "/lock."), "wrote %q", key)
	}
	assert.That(t, written >= 20, "only %d objects", written)
	counts := check(t, report, doctor.IfNoneMatchRace).Counts
	assert.That(t, counts["won"] == 20 && counts["puts"] == 160 && counts["rounds_with_several_winners"] == 0, "%v", counts)
	var checks, requests []string
	for _, c := range report.Checks {
		checks = append(checks, c.Name)
		assert.That(t, c.Detail != "" && c.Result != "", "%+v", c)
	}
	assert.Equal(t, strings.Join(checks, " "), "reachable list write read overwrite delete list_after_write if_none_match if_none_match_race if_none_match_deleted "+
		"if_match if_match_race if_match_absent conditional_delete versioning object_lock one_clock clock_offset", "checks")
	for _, l := range report.Latency {
		requests = append(requests, l.Request)
		assert.That(t, l.N != 0 && l.P99MS >= l.MedianMS, "%+v", l)
	}
	assert.Equal(t, strings.Join(requests, ", "), "list, get, put, put if-none-match, put if-match, delete, delete if-match", "latencies")
	raw, err := json.Marshal(report)
	assert.OK(t, err)
	for name := range strings.FieldsSeq("store prefix checks name result detail counts clock offset_seconds uncertainty_seconds source latency request n median_ms p99_ms " +
		"plan shared_round_trips exclusive_round_trips renewal release fence conditions says verdict fitness summary") {
		assert.That(t, strings.Contains(string(raw), `"`+name+`":`), "no %s in %s", name, raw)
	}
}

// able is a store with the optional abilities of a backend.
type able struct {
	flawed
	is      store.Description
	err     error // of Describe
	deletes string
}

func (s *able) Describe(context.Context) (store.Description, error) { return s.is, s.err }

func (s *able) DeleteIfMatch(ctx context.Context, key, etag string) error {
	_, o, err := s.Get(ctx, key, 1<<20)
	if err != nil {
		return err
	}
	switch {
	case s.deletes == "lacks":
		return &store.Error{Op: "delete", Key: key, Err: store.ErrConditionUnsupported}
	case s.deletes == "refuses":
		return &store.Error{Op: "delete", Key: key, Err: store.ErrPermission}
	case s.deletes == "keeps" && o.ETag != etag:
		return &store.Error{Op: "delete", Key: key, Err: store.ErrPrecondition}
	default:
		return s.Delete(ctx, key)
	}
}

// TestAbilities: the report describes the optional abilities of a backend, and the verdict doesn't depend on them.
func TestAbilities(t *testing.T) {
	described := store.Description{Server: "x/1", Versioning: store.Yes, ObjectLock: store.No}
	inBubble(t, func(t *testing.T, _ *hookstore.Store, _ *memory.Store, opts doctor.Options) {
		for _, c := range []struct {
			able
			check  string
			result doctor.Result
			says   string
		}{
			{able{deletes: "keeps"}, doctor.ConditionalDelete, doctor.OK, "a wrong ETag was refused"},
			{able{deletes: "ignores"}, doctor.ConditionalDelete, doctor.Warn, "ignored"},
			{able{deletes: "lacks"}, doctor.ConditionalDelete, doctor.Warn, "no such condition"},
			{able{deletes: "refuses"}, doctor.ConditionalDelete, doctor.Warn, "permission denied"},
			{able{deletes: "keeps", is: described}, doctor.Versioning, doctor.OK, "on"},
			{able{deletes: "keeps", is: described}, doctor.ObjectLock, doctor.OK, "off"},
			{able{deletes: "keeps", is: store.Description{Versioning: store.No}}, doctor.Versioning, doctor.OK, "off"},
			{able{deletes: "keeps", err: store.ErrPermission}, doctor.ObjectLock, doctor.Unknown, "doesn't say"},
		} {
			s := &c.able
			s.Store = memory.New(memory.Options{})
			r := run(t, s, opts)
			expect(t, r, results{c.check: c.result})
			got := check(t, r, c.check)
			assert.That(t, strings.Contains(got.Detail, c.says) && r.Server == s.is.Server, "%+v of server %q, want %s", got, r.Server, c.says)
			fitness(t, r, doctor.Fit)
			clean(t, s.Store, r)
		}
		s := &able{flawed: flawed{Store: memory.New(memory.Options{})}, err: store.ErrConfig}
		r, err := examine(t.Context(), s, opts)
		assert.Is(t, err, store.ErrConfig)
		clean(t, s.Store, r)
	})
}

// gateway caches listings until something is written through it, as rclone does for five
// minutes. From its own side it looks like the store behind it.
type gateway struct {
	store.Store
	mu    sync.Mutex
	pages map[string]store.Page
}

func (g *gateway) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	dawdle()
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pages)
	return g.Store.Put(ctx, key, body, opts)
}

func (g *gateway) Delete(ctx context.Context, key string) error {
	dawdle()
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pages)
	return g.Store.Delete(ctx, key)
}

func (g *gateway) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	dawdle()
	g.mu.Lock()
	defer g.mu.Unlock()
	if page, ok := g.pages[prefix+"\x00"+cursor]; ok {
		return page, nil
	}
	page, err := g.Store.List(ctx, prefix, cursor)
	if err == nil {
		g.pages[prefix+"\x00"+cursor] = page
	}
	return page, err
}

// both examines two ways to a store.
func both(ctx context.Context, a, b store.Store, opts doctor.Options) (doctor.Report, error) {
	opts.Prefix, opts.Locks = prefix, locks
	return doctor.Both(ctx, a, b, opts)
}

// TestBoth: doctor detects a caching gateway from either side, and leaves nothing behind.
func TestBoth(t *testing.T) {
	for name, test := range map[string]struct {
		first, second bool // the way caches
		there, back   doctor.Result
	}{
		"none":       {false, false, ok, ok},
		"the second": {false, true, fail, ok},
		"the first":  {true, false, ok, fail},
		"both":       {true, true, fail, fail},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *hookstore.Store, _ *memory.Store, opts doctor.Options) {
				m := memory.New(memory.Options{})
				way := func(caches bool) store.Store {
					if caches {
						return &gateway{Store: m, pages: map[string]store.Page{}}
					}
					return &flawed{Store: m}
				}
				a, b := way(test.first), way(test.second)
				r, err := both(t.Context(), a, b, opts)
				assert.Need(t, err == nil && r.Also != nil, "%v", err)
				there, back := check(t, r, doctor.ListAfterWrite), check(t, *r.Also, doctor.ListAfterWrite)
				assert.That(t, there.Result == test.there && back.Result == test.back,
					"there %s, want %s: %s; back %s, want %s: %s", there.Result, test.there, there.Detail, back.Result, test.back, back.Detail)
				fit := test.there == ok && test.back == ok
				assert.That(t, (r.Fitness() == doctor.Fit) == fit, "fitness %v, there %v, back %v", r.Fitness(), r.Verdict, r.Also.Verdict)
				clean(t, m, r)
				clean(t, m, *r.Also)
			})
		})
	}
}

// TestBothEnds: if the first way to a store can't be reached, the second one isn't tried.
func TestBothEnds(t *testing.T) {
	inBubble(t, func(t *testing.T, a *hookstore.Store, m *memory.Store, opts doctor.Options) {
		a.Before(func(context.Context, hookstore.Request) error { return store.ErrConfig })
		b := &hookstore.Store{Store: m}
		r, err := both(t.Context(), a, b, opts)
		n, _ := b.Count()
		assert.That(t, errors.Is(err, store.ErrConfig) && r.Also == nil && n == 0, "%v, %+v, %d requests", err, r.Also, n)
	})
}

// TestPermissions: doctor finds each lacking permission by its name, and reports the refused request. It names
// the objects that it can't delete.
func TestPermissions(t *testing.T) {
	type request = hookstore.Request
	ops := func(all ...string) func(request, bool) bool {
		return func(r request, _ bool) bool { return slices.Contains(all, r.Op) && strings.HasPrefix(r.Key, prefix) }
	}
	overwrites := func(r request, there bool) bool { return r.Op == "put" && there && r.Opts == (store.PutOptions{}) }
	for name, test := range map[string]struct {
		opts    memory.Options
		refused func(r request, there bool) bool // there: the object exists
		want    results
		fit     doctor.Fitness
		says    string // the detail of the first refused check
	}{
		"list": {memory.Options{}, ops("list"), results{doctor.List: fail, doctor.ListAfterWrite: unknown, doctor.IfMatchRace: ok},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"put": {memory.Options{}, ops("put"), results{doctor.Write: fail, doctor.Read: ok, doctor.Overwrite: unknown, doctor.Delete: unknown},
			doctor.LacksPermission, `put "index/locks/doctor-`},
		"get": {memory.Options{}, ops("get"), results{doctor.Read: fail, doctor.Overwrite: ok, doctor.Delete: ok, doctor.ListAfterWrite: ok},
			doctor.LacksPermission, `get "index/locks/doctor-`},
		"delete": {memory.Options{}, ops("delete"), results{doctor.Delete: warn}, doctor.Fit, `delete "index/locks/doctor-`},
		"put and delete": {memory.Options{}, ops("put", "delete"), results{doctor.Write: fail, doctor.Delete: fail, doctor.Read: ok},
			doctor.LacksPermission, `put "index/locks/doctor-`},
		"list and put and get": {memory.Options{}, ops("list", "put", "get"), results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"all": {memory.Options{}, ops("list", "put", "get", "delete"),
			results{doctor.List: fail, doctor.Write: fail, doctor.Read: unknown, doctor.Delete: fail},
			doctor.LacksPermission, `list "index/locks/doctor-`},
		"overwrite": {memory.Options{}, overwrites, results{doctor.Overwrite: fail}, doctor.LacksPermission, `put "index/locks/doctor-`}, // renewing needs it
		"overwrite and delete": {memory.Options{}, func(r request, there bool) bool { return overwrites(r, there) || r.Op == "delete" },
			results{doctor.Overwrite: fail, doctor.Delete: fail}, doctor.LacksPermission, `put "index/locks/doctor-`},
		"the locks": {memory.Options{}, func(r request, _ bool) bool { return r.Key == locks }, // every acquirer lists them
			results{doctor.Reachable: fail, doctor.ListAfterWrite: ok}, doctor.LacksPermission, `list "index/lock.`},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, _ *hookstore.Store, _ *memory.Store, opts doctor.Options) {
				m := memory.New(test.opts)
				s := &hookstore.Store{Store: m}
				s.Before(func(ctx context.Context, r request) error {
					dawdle()
					if test.refused(r, !missing(ctx, m, r.Key)) {
						return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
					}
					return nil
				})
				r := run(t, s, opts)
				expect(t, r, test.want)
				fitness(t, r, test.fit)
				assert.Equal(t, strings.HasSuffix(r.Verdict.Summary, ": list the locks"), name == "the locks", r.Verdict.Summary)
				i := slices.IndexFunc(r.Checks, func(c doctor.Check) bool { return c.Refused })
				c := r.Checks[i]
				assert.That(t, strings.HasPrefix(c.Detail, test.says) && strings.Contains(c.Detail, "permission denied"),
					"%s says %q", c.Name, c.Detail)
				keys := left(t, m, r)
				undeletable := name == "delete" || name == "overwrite and delete"
				assert.That(t, len(keys) == len(r.Left) && (len(keys) > 0) == undeletable, "%d are left, %d are named", len(keys), len(r.Left))
				if test.fit != doctor.Fit {
					return
				}
				for _, key := range keys {
					body, _, err := m.Get(t.Context(), key, 1)
					assert.That(t, err == nil && len(body) == 0, "%s isn't emptied: %q, %v", key, body, err)
				}
				assert.That(t, r.Plan != nil && r.Plan.Release == "empty_put", "plan: %+v", r.Plan)
			})
		})
	}
}

// TestCreatesWithoutDelete: without the right to delete, a key that never existed shows that the
// server takes If-Match on a missing key.
func TestCreatesWithoutDelete(t *testing.T) {
	inBubble(t, func(t *testing.T, _ *hookstore.Store, _ *memory.Store, opts doctor.Options) {
		m := memory.New(memory.Options{IfAbsent: memory.Claimed, IfMatch: memory.Claimed})
		s := &hookstore.Store{Store: &flawed{Store: m, amend: creates}}
		s.Before(func(_ context.Context, r hookstore.Request) error {
			if r.Op == "delete" {
				return &store.Error{Op: r.Op, Key: r.Key, Err: store.ErrPermission}
			}
			return nil
		})
		c := check(t, run(t, s, opts), doctor.IfMatchAbsent)
		assert.That(t, c.Result == warn && strings.Contains(c.Detail, "MinIO before September 2025"), "%+v", c)
	})
}
