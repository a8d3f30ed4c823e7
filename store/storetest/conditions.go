package storetest

import (
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/counter"
	"github.com/repolock/repolock/store"
)

// refused checks the answer to a Put whose condition isn't met, against what
// the store declares, and returns whether it wrote. Only a store that claims a
// condition may ignore it.
func refused(t *testing.T, declared store.Condition, err error) (wrote bool) {
	t.Helper()
	switch declared {
	case store.Unsupported:
		if !errors.Is(err, store.ErrConditionUnsupported) {
			t.Errorf("unsupported, and answered with %v", err)
		}
	case store.Kept:
		if !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("kept, and answered with %v", err)
		}
	case store.Claimed:
		if err != nil && !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConditionUnsupported) {
			t.Errorf("claimed, and answered with %v", err)
		}
	}
	return err == nil
}

// granted checks the answer to a Put whose condition is met, and returns
// whether it wrote.
func granted(t *testing.T, declared store.Condition, err error) (wrote bool) {
	t.Helper()
	if declared == store.Unsupported || declared == store.Claimed && err != nil {
		if !errors.Is(err, store.ErrConditionUnsupported) {
			t.Errorf("%s, and answered with %v", declared, err)
		}
		return false
	}
	if err != nil {
		t.Errorf("%s, and answered with %v", declared, err)
	}
	return err == nil
}

// holds checks what is stored under a key; "" for nothing.
func (f *fixture) holds(t *testing.T, key, want string) {
	t.Helper()
	body, _, err := f.other.Get(t.Context(), key, limit)
	if want == "" {
		if !errors.Is(err, store.ErrNotFound) {
			t.Errorf("%q has %q, %v", key, body, err)
		}
	} else if err != nil || string(body) != want {
		t.Errorf("%q has %q, %v; want %q", key, body, err, want)
	}
}

// either checks that what is stored under a/k is new if a request wrote it, or else old.
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
		_, err := f.store.Put(t.Context(), "a/k", []byte(body), store.PutOptions{IfAbsent: true})
		return err
	}
	f.either(t, granted(t, declared, put("1")), "1", "")
	f.put(t, "a/k", "2")
	f.either(t, refused(t, declared, put("3")), "3", "2")
	f.delete(t, "a/k")
	f.either(t, granted(t, declared, put("4")), "4", "")
}

// ifAbsentRace sends N puts of one key at once, through both handles. Exactly one must
// succeed, and its body must be stored.
func ifAbsentRace(t *testing.T, f *fixture) {
	n, rounds := 16, f.rounds(100)
	declared := f.store.Properties().IfAbsent
	for round := range rounds {
		key := fmt.Sprintf("index/locks/%d/lock.exclusive", round)
		var winners atomic.Int32
		var winner atomic.Int32
		together(n, func(i int) {
			s := f.store
			if i%2 == 1 {
				s = f.other
			}
			_, err := s.Put(t.Context(), key, []byte(strconv.Itoa(i)), store.PutOptions{IfAbsent: true})
			switch {
			case err == nil:
				winners.Add(1)
				winner.Store(int32(i))
			case declared == store.Unsupported && !errors.Is(err, store.ErrConditionUnsupported),
				declared == store.Kept && !errors.Is(err, store.ErrPrecondition):
				t.Errorf("%s, and answered with %v", declared, err)
			}
		})
		switch declared {
		case store.Kept:
			if winners.Load() != 1 {
				t.Fatalf("%d winners in round %d", winners.Load(), round)
			}
			f.holds(t, key, strconv.Itoa(int(winner.Load())))
		case store.Claimed:
			if winners.Load() == 1 {
				f.holds(t, key, strconv.Itoa(int(winner.Load())))
			}
		case store.Unsupported:
			if winners.Load() != 0 {
				t.Fatalf("%d winners in round %d", winners.Load(), round)
			}
			f.holds(t, key, "")
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
	if now := f.etag(t); wrote && obj.ETag != "" && obj.ETag != now {
		t.Errorf("put told the etag %q, get %q", obj.ETag, now)
	}
	f.put(t, "a/k", "3")
	_, err = put("4", first)
	f.either(t, refused(t, declared, err), "4", "3")

	// A body that is too large to be hashed for a listing has an ETag too.
	large := string(make([]byte, 100_000))
	f.put(t, "a/k", large)
	_, err = put("6", f.etag(t))
	f.either(t, granted(t, declared, err), "6", large)
}

// etag returns the ETag of a/k.
func (f *fixture) etag(t *testing.T) string {
	t.Helper()
	_, obj := f.get(t, "a/k")
	return obj.ETag
}

// ifMatchOfNothing puts under a key that was never there, and then was deleted: neither has the ETag. A
// store that claims the condition may write, and then must say so.
func ifMatchOfNothing(t *testing.T, f *fixture) {
	f.put(t, "a/other", "1")
	_, last := f.get(t, "a/other")
	for range 2 {
		_, err := f.store.Put(t.Context(), "a/k", []byte("created"), store.PutOptions{IfMatch: last.ETag})
		wrote := refused(t, f.store.Properties().IfMatch, err)
		f.either(t, wrote, "created", "")
		if got := len(list(t, f.other, "a/k")); (got != 0) != wrote {
			t.Errorf("%d are listed after %v", got, err)
		}
		f.put(t, "a/k", "2")
		_, last = f.get(t, "a/k")
		f.delete(t, "a/k")
	}
}

// ifMatchIncrements counts up in one object from many goroutines. If the condition isn't kept,
// it checks that no refused put was written.
func ifMatchIncrements(t *testing.T, f *fixture) {
	const n, each = 8, 12
	declared := f.store.Properties().IfMatch
	f.put(t, "counter", "0")
	var counted atomic.Int32
	together(n, func(i int) {
		s := f.store
		if i%2 == 1 {
			s = f.other
		}
		for range each {
			ok, err := counter.Increment(t.Context(), s, "counter")
			if err != nil && (declared != store.Unsupported || !errors.Is(err, store.ErrConditionUnsupported)) {
				t.Errorf("%s, and answered with %v", declared, err)
				return
			}
			if ok {
				counted.Add(1)
			}
		}
	})
	body, _ := f.get(t, "counter")
	switch declared {
	case store.Kept:
		if body != strconv.Itoa(n*each) {
			t.Errorf("%s after %d increments", body, n*each)
		}
	case store.Unsupported:
		if body != "0" || counted.Load() != 0 {
			t.Errorf("%s, after %d that were answered as done", body, counted.Load())
		}
	case store.Claimed:
		if got, err := strconv.Atoi(body); err != nil || got > int(counted.Load()) {
			t.Errorf("%s after %d increments", body, counted.Load())
		}
	}
}

// ifMatchAgainstDelete sends a conditional Put and a Delete at once: whichever comes first,
// nothing is left in the end.
func ifMatchAgainstDelete(t *testing.T, f *fixture) {
	declared := f.store.Properties().IfMatch
	f.race(t, declared, func(etag string) error {
		_, err := f.store.Put(t.Context(), "a/k", []byte("revived"), store.PutOptions{IfMatch: etag})
		return err
	}, func() error { return f.other.Delete(t.Context(), "a/k") }, false)
}

// race sends a conditional request and another one at once, again and again, and checks whether there is an
// object in the end.
func (f *fixture) race(t *testing.T, declared store.Condition, conditional func(etag string) error, other func() error, there bool) {
	t.Helper()
	wrong, rounds := 0, f.rounds(200)
	for round := range rounds {
		f.put(t, "a/k", strconv.Itoa(round))
		etag := f.etag(t)
		together(2, func(i int) {
			if i == 0 {
				if err := other(); err != nil {
					t.Error(err)
				}
				return
			}
			err := conditional(etag)
			if declared == store.Unsupported && !errors.Is(err, store.ErrConditionUnsupported) ||
				declared == store.Kept && err != nil && !errors.Is(err, store.ErrPrecondition) {
				t.Errorf("%s, and answered with %v", declared, err)
			}
		})
		_, _, err := f.store.Get(t.Context(), "a/k", limit)
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			t.Error(err)
		}
		if (err == nil) != there {
			wrong++
		}
	}
	if wrong > 0 && declared != store.Claimed {
		t.Errorf("%s, and after %d of %d there is an object: %t", declared, wrong, rounds, !there)
	}
}

// deleteIfMatch removes an object by the right ETag, and not by a wrong one. If there is no
// object, nothing is to be removed: either answer is right.
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
	if err := remove(last); err != nil && !errors.Is(err, store.ErrPrecondition) && !errors.Is(err, store.ErrConditionUnsupported) {
		t.Errorf("nothing to remove, and answered with %v", err)
	}
}

// deleteIfMatchAgainstPut sends a conditional deletion and a Put at once: whichever comes first,
// what was put is there in the end.
func deleteIfMatchAgainstPut(t *testing.T, f *fixture) {
	f.race(t, f.store.Properties().DeleteIfMatch, func(etag string) error {
		return store.DeleteIfMatch(t.Context(), f.store, "a/k", etag)
	}, func() error {
		_, err := f.other.Put(t.Context(), "a/k", []byte("new"), store.PutOptions{})
		return err
	}, true)
}
