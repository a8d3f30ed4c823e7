package doctor_test

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/internal/test/hookstore"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// Stores that break the contract, each in one way.
type (
	lagging struct {
		*mem.Store
		mu     sync.Mutex
		hidden map[string]int
	}
	gap        struct{ *mem.Store }
	racyAbsent struct{ racy }
	racyMatch  struct{ racy }
	racy       struct{ *mem.Store }
	deaf       struct{ *mem.Store } // declares conditions as kept, and ignores them
	stiff      struct{ *mem.Store } // refuses every condition, met or not
	garbles    struct{ *mem.Store }
	keeps      struct{ *mem.Store }
	forgets    struct{ *mem.Store }
	fastClock  struct {
		*mem.Store
		by time.Duration
	}
	untagged  struct{ *mem.Store }
	noSuchKey struct{ *mem.Store } // refuses If-Match on a missing key because the key is missing
	creates   struct{ *mem.Store } // takes If-Match on a missing key, as MinIO before September 2025 does
	revives   struct {             // takes If-Match with the ETag of a deleted object
		*mem.Store
		mu   sync.Mutex
		last map[string]string // ETags
	}
)

// dawdle gives the others time for a race that must not happen.
func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

// Put is answered before a listing shows it: every tenth new object is hidden from
// the next two.
func (s *lagging) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	s.mu.Lock()
	if _, known := s.hidden[key]; !known && len(s.hidden)%10 == 9 {
		s.hidden[key] = 2
	} else if !known {
		s.hidden[key] = 0
	}
	s.mu.Unlock()
	return s.Store.Put(ctx, key, body, opts)
}

func (s *lagging) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	s.mu.Lock()
	defer s.mu.Unlock()
	var shown []store.Object
	for _, o := range page.Objects {
		if s.hidden[o.Key] > 0 {
			s.hidden[o.Key]--
		} else {
			shown = append(shown, o)
		}
	}
	page.Objects = shown
	return page, err
}

// Put deletes what was there first.
func (s *gap) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts == (store.PutOptions{}) {
		if err := s.Delete(ctx, key); err != nil {
			return store.Object{}, err
		}
		dawdle()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// Put looks first and then writes.
func (s *racy) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	_, now, err := s.Get(ctx, key, 1<<20)
	if opts.IfAbsent && err == nil || opts.IfMatch != "" && now.ETag != opts.IfMatch {
		return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
	}
	if opts != (store.PutOptions{}) {
		dawdle()
	}
	return s.Store.Put(ctx, key, body, store.PutOptions{})
}

func (s *racyAbsent) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts.IfMatch != "" {
		return s.Store.Put(ctx, key, body, opts)
	}
	return s.racy.Put(ctx, key, body, opts)
}

func (s *racyMatch) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts.IfAbsent {
		return s.Store.Put(ctx, key, body, opts)
	}
	return s.racy.Put(ctx, key, body, opts)
}

func (s *deaf) Put(ctx context.Context, key string, body []byte, _ store.PutOptions) (store.Object, error) {
	return s.Store.Put(ctx, key, body, store.PutOptions{})
}

func (s *stiff) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts != (store.PutOptions{}) {
		return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
	}
	return s.Store.Put(ctx, key, body, opts)
}

func (s *garbles) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	body, o, err := s.Store.Get(ctx, key, limit)
	if len(body) > 0 {
		body[0]++
	}
	return body, o, err
}

func (s *keeps) Delete(context.Context, string) error { return nil }

// Put is answered and not carried out.
func (s *forgets) Put(context.Context, string, []byte, store.PutOptions) (store.Object, error) {
	return store.Object{ETag: "x"}, nil
}

// List returns a time that is not the one of the objects.
func (s *fastClock) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	page.Now = page.Now.Add(s.by)
	return page, err
}

// Put doesn't return the ETag.
func (s *untagged) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	_, err := s.Store.Put(ctx, key, body, opts)
	return store.Object{Key: key}, err
}

func (s *creates) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if _, _, err := s.Get(ctx, key, 1<<20); opts.IfMatch != "" && errors.Is(err, store.ErrNotFound) {
		opts.IfMatch = ""
	}
	return s.Store.Put(ctx, key, body, opts)
}

func (s *noSuchKey) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if _, _, err := s.Get(ctx, key, 1<<20); opts.IfMatch != "" && errors.Is(err, store.ErrNotFound) {
		return store.Object{}, err
	}
	return s.Store.Put(ctx, key, body, opts)
}

func (s *revives) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, _, err := s.Get(ctx, key, 1<<20); opts.IfMatch != "" && opts.IfMatch == s.last[key] && errors.Is(err, store.ErrNotFound) {
		opts.IfMatch = ""
	}
	o, err := s.Store.Put(ctx, key, body, opts)
	if err == nil {
		s.last[key] = o.ETag
	}
	return o, err
}

// TestBroken: doctor finds each fault, and reports no other.
func TestBroken(t *testing.T) {
	type results = map[string]doctor.Result
	const (
		fail    = doctor.Fail
		warn    = doctor.Warn
		unknown = doctor.Unknown
	)
	claimed := mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed}
	for name, test := range map[string]struct {
		opts mem.Options
		make func(*mem.Store) store.Store
		want results
		fit  doctor.Fitness
	}{
		"lagging": {mem.Options{}, func(m *mem.Store) store.Store { return &lagging{Store: m, hidden: map[string]int{}} },
			results{doctor.ListAfterWrite: fail}, doctor.Unfit},
		"gap": {mem.Options{}, func(m *mem.Store) store.Store { return &gap{m} },
			results{doctor.ListAfterWrite: fail}, doctor.Unfit},
		"racy, declared as kept": {mem.Options{}, func(m *mem.Store) store.Store { return &racy{m} },
			results{doctor.IfNoneMatchRace: fail, doctor.IfMatchRace: fail}, doctor.Unfit},
		"racy": {claimed, func(m *mem.Store) store.Store { return &racy{m} },
			results{doctor.IfNoneMatchRace: warn, doctor.IfMatchRace: warn}, doctor.Fit},
		"racy absent": {claimed, func(m *mem.Store) store.Store { return &racyAbsent{racy{m}} },
			results{doctor.IfNoneMatchRace: warn, doctor.IfMatchRace: doctor.OK}, doctor.Fit},
		"racy match": {claimed, func(m *mem.Store) store.Store { return &racyMatch{racy{m}} },
			results{doctor.IfNoneMatchRace: doctor.OK, doctor.IfMatchRace: warn}, doctor.Fit},
		"deaf, declared as kept": {mem.Options{}, func(m *mem.Store) store.Store { return &deaf{m} },
			results{doctor.IfNoneMatch: fail, doctor.IfNoneMatchRace: fail, doctor.IfMatch: fail, doctor.IfMatchRace: unknown}, doctor.Unfit},
		"stiff": {claimed, func(m *mem.Store) store.Store { return &stiff{m} },
			results{doctor.IfNoneMatch: warn, doctor.IfNoneMatchRace: warn, doctor.IfMatch: warn, doctor.IfMatchRace: unknown}, doctor.Fit},
		"garbles": {mem.Options{}, func(m *mem.Store) store.Store { return &garbles{m} },
			results{doctor.Read: fail}, doctor.Unfit},
		"keeps": {mem.Options{}, func(m *mem.Store) store.Store { return &keeps{m} },
			results{doctor.Delete: fail}, doctor.Unfit},
		"forgets": {claimed, func(m *mem.Store) store.Store { return &forgets{m} },
			results{doctor.Read: fail, doctor.ListAfterWrite: fail}, doctor.Unfit},
		"fast clock": {mem.Options{}, func(m *mem.Store) store.Store { return &fastClock{m, time.Minute} },
			results{doctor.OneClock: warn, doctor.ClockOffset: warn}, doctor.Fit},
		"slow clock": {mem.Options{}, func(m *mem.Store) store.Store { return &fastClock{m, -time.Minute} },
			results{doctor.OneClock: warn, doctor.ClockOffset: warn}, doctor.Fit},
		"creates": {claimed, func(m *mem.Store) store.Store { return &creates{m} },
			results{doctor.IfMatch: doctor.OK, doctor.IfMatchRace: doctor.OK, doctor.IfMatchAbsent: warn}, doctor.Fit},
		"creates, declared as kept": {mem.Options{}, func(m *mem.Store) store.Store { return &creates{m} },
			results{doctor.IfMatch: doctor.OK, doctor.IfMatchRace: doctor.OK, doctor.IfMatchAbsent: fail}, doctor.Unfit},
		"revives": {claimed, func(m *mem.Store) store.Store { return &revives{Store: m, last: map[string]string{}} },
			results{doctor.IfMatchAbsent: warn}, doctor.Fit},
		"no such key": {claimed, func(m *mem.Store) store.Store { return &noSuchKey{m} },
			results{doctor.IfMatchAbsent: doctor.OK}, doctor.Fit},
		"untagged": {claimed, func(m *mem.Store) store.Store { return &untagged{m} },
			results{doctor.IfMatch: doctor.OK, doctor.IfMatchRace: doctor.OK}, doctor.Fit},
	} {
		t.Run(name, func(t *testing.T) {
			m := mem.New(test.opts)
			r := run(t, test.make(m), doctor.Options{})
			expect(t, r, test.want)
			fitness(t, r, test.fit)
			if passed := name == "fast clock" || name == "slow clock" || name == "untagged" || name == "no such key"; r.Plan != nil && (r.Plan.Conditions == doctor.Unreliable) == passed {
				t.Errorf("conditions: %s", r.Plan.Conditions)
			}
			if name != "keeps" {
				empty(t, m)
			} else if left := all(t, m); len(left) == 0 || len(left) != len(r.Left) {
				t.Errorf("%d are left, %d are named", len(left), len(r.Left))
			}
		})
	}
}

// TestHandles: an object that is written through one handle must be there through the other.
func TestHandles(t *testing.T) {
	a, b := mem.New(mem.Options{}), mem.New(mem.Options{})
	r := run(t, a, doctor.Options{Others: []store.Store{b}})
	expect(t, r, map[string]doctor.Result{doctor.Read: doctor.Fail, doctor.ListAfterWrite: doctor.Fail})
	fitness(t, r, doctor.Unfit)
}

// lacks claims conditions, and answers that it has none.
type lacks struct{ *mem.Store }

func (s lacks) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts != (store.PutOptions{}) {
		return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrConditionUnsupported}
	}
	return s.Store.Put(ctx, key, body, opts)
}

// TestClaimedAndLacking: every acquire finds it out, at the cost of a round trip.
func TestClaimedAndLacking(t *testing.T) {
	r := run(t, lacks{mem.New(mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed})}, doctor.Options{})
	expect(t, r, map[string]doctor.Result{doctor.IfNoneMatch: doctor.Warn, doctor.IfMatch: doctor.Warn})
	fitness(t, r, doctor.Fit)
	if r.Plan == nil || r.Plan.Exclusive != 5 || r.Plan.Renewal != "look_and_put" {
		t.Errorf("%+v", r.Plan)
	}
}

// TestCreates: doctor's text about a server that takes If-Match on a missing key agrees with
// repolock's behaviour and with the remedy.
func TestCreates(t *testing.T) {
	for _, test := range []struct {
		opts mem.Options
		says string
	}{
		{mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed}, "repolock looks before each put instead"},
		{mem.Options{}, "leave conditions=kept out of the URL"},
	} {
		m := mem.New(test.opts)
		r := run(t, &creates{m}, doctor.Options{})
		c := check(t, r, doctor.IfMatchAbsent)
		if !strings.Contains(c.Detail, "MinIO before September 2025") || !strings.Contains(c.Detail, test.says) {
			t.Error(c.Detail)
		}
		if r.Plan != nil && (r.Plan.Renewal != "look_and_put" || r.Plan.Conditions != doctor.Unreliable || r.Plan.Fence) {
			t.Errorf("%+v", r.Plan)
		}
		empty(t, m)
	}
}

// TestCreatesWithoutDelete: without the right to delete, a key that never existed shows it.
func TestCreatesWithoutDelete(t *testing.T) {
	m := mem.New(mem.Options{IfAbsent: mem.Claimed, IfMatch: mem.Claimed})
	s := &hookstore.Store{Store: &creates{m}}
	refuse(s, "delete")
	c := check(t, run(t, s, doctor.Options{}), doctor.IfMatchAbsent)
	if c.Result != doctor.Warn || !strings.Contains(c.Detail, "MinIO before September 2025") {
		t.Errorf("%+v", c)
	}
}
