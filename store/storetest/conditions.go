package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// refused checks the answer to a request whose condition isn't met, and reports whether the request was
// applied. Only a store that claims the condition may apply it.
func refused(t *testing.T, declared store.Condition, err error) (wrote bool) {
	t.Helper()
	switch declared {
	case store.Unsupported:
		assert.Is(t, err, store.ErrConditionUnsupported, "unsupported: the answer")
	case store.Kept:
		assert.Is(t, err, store.ErrPrecondition, "kept: the answer")
	case store.Claimed:
		assert.That(t, err == nil || errors.Is(err, store.ErrPrecondition) || errors.Is(err, store.ErrConditionUnsupported),
			"claimed: the answer is %v", err)
	}
	return err == nil
}

// granted checks the answer to a request whose condition is met, and reports whether it was applied.
func granted(t *testing.T, declared store.Condition, err error) (wrote bool) {
	t.Helper()
	if declared == store.Unsupported || declared == store.Claimed && err != nil {
		assert.Is(t, err, store.ErrConditionUnsupported, "%s: the answer", declared)
		return false
	}
	assert.Is(t, err, nil, "%s: the answer", declared)
	return err == nil
}

// raced checks the answer to a conditional request that ran at the same time as others, and reports whether it was
// applied.
func raced(t *testing.T, declared store.Condition, err error) (wrote bool) {
	t.Helper()
	if declared == store.Claimed || declared == store.Kept && err == nil {
		return err == nil
	}
	return refused(t, declared, err)
}

// holds checks the body under a key. "" means that there must be no object.
func (f *fixture) holds(t *testing.T, key, want string) {
	t.Helper()
	body, _, err := f.other.Get(t.Context(), key, limit)
	if want == "" {
		assert.Is(t, err, store.ErrNotFound, "%q has %q", key, body)
		return
	}
	assert.Is(t, err, nil, "%q", key)
	assert.Equal(t, string(body), want, "%q", key)
}

// either checks the body under a/k. It must be written if a request was applied, or else old.
func (f *fixture) either(t *testing.T, wrote bool, written, old string) {
	t.Helper()
	if !wrote {
		written = old
	}
	f.holds(t, "a/k", written)
}

func ifAbsent(t *testing.T, f *fixture) {
	declared := f.store.Properties().IfAbsent
	put := func(body string) error {
		return assert.Err(f.store.Put(t.Context(), "a/k", []byte(body), store.PutOptions{IfAbsent: true}))
	}
	f.either(t, granted(t, declared, put("1")), "1", "")
	f.put(t, "a/k", "2")
	f.either(t, refused(t, declared, put("3")), "3", "2")
	f.delete(t, "a/k")
	f.either(t, granted(t, declared, put("4")), "4", "")
}

// ifAbsentRace sends 16 puts of one key at once, through both handles. Exactly one must
// succeed, and its body must be stored.
func ifAbsentRace(t *testing.T, f *fixture) {
	declared := f.store.Properties().IfAbsent
	for round := range f.rounds(100) {
		key := fmt.Sprintf("index/locks/%d/lock.exclusive", round)
		var winners, winner atomic.Int32
		f.together(16, func(i int, s, _ store.Store) {
			_, err := s.Put(t.Context(), key, []byte(strconv.Itoa(i)), store.PutOptions{IfAbsent: true})
			if raced(t, declared, err) {
				winners.Add(1)
				winner.Store(int32(i))
			}
		})
		switch n := winners.Load(); {
		case n == 1 && declared != store.Unsupported:
			f.holds(t, key, strconv.Itoa(int(winner.Load())))
		case n == 0 && declared == store.Unsupported:
			f.holds(t, key, "")
		case declared != store.Claimed:
			t.Fatalf("%d winners in round %d", n, round)
		}
	}
}

func ifMatch(t *testing.T, f *fixture) {
	declared := f.store.Properties().IfMatch
	put := func(body, etag string) (store.Object, error) {
		return f.store.Put(t.Context(), "a/k", []byte(body), store.PutOptions{IfMatch: etag})
	}
	f.put(t, "a/k", "1")
	first := f.etag(t)
	obj, err := put("2", first)
	wrote := granted(t, declared, err)
	f.either(t, wrote, "2", "1")
	now := f.etag(t)
	assert.That(t, !wrote || obj.ETag == "" || obj.ETag == now, "put returned the etag %q, and get %q", obj.ETag, now)
	f.put(t, "a/k", "3")
	_, err = put("4", first)
	f.either(t, refused(t, declared, err), "4", "3")

	// A body that is too large to be hashed for a listing has an ETag too.
	large := string(make([]byte, 100_000))
	f.put(t, "a/k", large)
	_, err = put("6", f.etag(t))
	f.either(t, granted(t, declared, err), "6", large)
}

func (f *fixture) etag(t *testing.T) string {
	t.Helper()
	_, obj := f.get(t, "a/k")
	return obj.ETag
}

// ifMatchOfNothing puts under a key that has no object, because it never had one, or because the object was deleted. A
// store that only claims the condition is allowed to write, but then must return no error.
func ifMatchOfNothing(t *testing.T, f *fixture) {
	f.put(t, "a/other", "1")
	_, last := f.get(t, "a/other")
	for range 2 {
		_, err := f.store.Put(t.Context(), "a/k", []byte("created"), store.PutOptions{IfMatch: last.ETag})
		wrote := refused(t, f.store.Properties().IfMatch, err)
		f.either(t, wrote, "created", "")
		got := len(list(t, f.other, "a/k"))
		assert.That(t, (got != 0) == wrote, "%d are listed after %v", got, err)
		f.put(t, "a/k", "2")
		_, last = f.get(t, "a/k")
		f.delete(t, "a/k")
	}
}

// increment adds one to a number by conditional puts, until the store takes one. Some servers refuse the
// current ETag while another put is under way, but no server does so again and again.
func increment(ctx context.Context, s store.Store, key string) error {
	for range 1000 {
		body, obj, err := s.Get(ctx, key, limit)
		if err != nil {
			return err
		}
		n, err := strconv.Atoi(string(body))
		if err != nil {
			return err
		}
		_, err = s.Put(ctx, key, []byte(strconv.Itoa(n+1)), store.PutOptions{IfMatch: obj.ETag})
		if !errors.Is(err, store.ErrPrecondition) {
			return err
		}
	}
	return errors.New("If-Match was refused 1,000 times")
}

// ifMatchIncrements counts up in one object from many goroutines. If the condition isn't kept, it only
// checks that no refused put was applied.
func ifMatchIncrements(t *testing.T, f *fixture) {
	const n, each = 8, 12
	declared := f.store.Properties().IfMatch
	f.put(t, "counter", "0")
	var counted atomic.Int32
	f.together(n, func(_ int, s, _ store.Store) {
		for range each {
			err := increment(t.Context(), s, "counter")
			if err == nil {
				counted.Add(1)
			} else if declared != store.Unsupported || !errors.Is(err, store.ErrConditionUnsupported) {
				t.Errorf("%s: the answer is %v", declared, err)
				return
			}
		}
	})
	body, _ := f.get(t, "counter")
	switch declared {
	case store.Kept:
		assert.That(t, body == strconv.Itoa(n*each), "%s after %d increments", body, n*each)
	case store.Unsupported:
		assert.That(t, body == "0" && counted.Load() == 0,
			"%s, after %d that were answered as done", body, counted.Load())
	case store.Claimed:
		got, err := strconv.Atoi(body)
		assert.That(t, err == nil && got <= int(counted.Load()), "%s after %d increments", body, counted.Load())
	}
}

// ifMatchAgainstDelete sends a conditional Put and a Delete at the same time. Whichever comes first, there must be no
// object afterwards.
func ifMatchAgainstDelete(t *testing.T, f *fixture) {
	f.race(t, f.store.Properties().IfMatch, func(etag string) error {
		return assert.Err(f.store.Put(t.Context(), "a/k", []byte("revived"), store.PutOptions{IfMatch: etag}))
	}, func() error { return f.other.Delete(t.Context(), "a/k") }, false)
}

// race sends a conditional request and another one at once, again and again. After each round it checks
// whether there is an object.
func (f *fixture) race(t *testing.T, declared store.Condition, conditional func(etag string) error, other func() error, there bool) {
	t.Helper()
	wrong, rounds := 0, f.rounds(200)
	for round := range rounds {
		f.put(t, "a/k", strconv.Itoa(round))
		etag := f.etag(t)
		f.together(2, func(i int, _, _ store.Store) {
			if i == 0 {
				assert.Is(t, other(), nil)
			} else {
				raced(t, declared, conditional(etag))
			}
		})
		_, _, err := f.store.Get(t.Context(), "a/k", limit)
		assert.That(t, err == nil || errors.Is(err, store.ErrNotFound), "%v", err)
		if (err == nil) != there {
			wrong++
		}
	}
	assert.That(t, wrong == 0 || declared == store.Claimed,
		"%s, and after %d of %d there is an object: %t", declared, wrong, rounds, !there)
}

// deleteIfMatch removes an object by the right ETag, and checks that a wrong one removes nothing. If there is no
// object, either answer is right.
func deleteIfMatch(t *testing.T, f *fixture) {
	declared := f.store.Properties().DeleteIfMatch
	remove := func(etag string) error { return store.DeleteIfMatch(t.Context(), f.store, "a/k", etag) }
	f.put(t, "a/k", "1")
	first := f.etag(t)
	f.put(t, "a/k", "2")
	f.either(t, refused(t, declared, remove(first)), "", "2")
	f.put(t, "a/k", "3")
	last := f.etag(t)
	f.either(t, granted(t, declared, remove(last)), "", "3")
	f.delete(t, "a/k")
	if err := remove(last); err != nil && !errors.Is(err, store.ErrPrecondition) {
		assert.Is(t, err, store.ErrConditionUnsupported, "without an object: the answer")
	}
}

// deleteIfMatchAgainstPut sends a conditional deletion and a Put at the same time. Whichever comes first, the object of
// the Put must exist afterwards.
func deleteIfMatchAgainstPut(t *testing.T, f *fixture) {
	f.race(t, f.store.Properties().DeleteIfMatch, func(etag string) error {
		return store.DeleteIfMatch(t.Context(), f.store, "a/k", etag)
	}, func() error {
		return assert.Err(f.other.Put(t.Context(), "a/k", []byte("new"), store.PutOptions{}))
	}, true)
}
