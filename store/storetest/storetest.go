// Package storetest checks that a backend keeps the contract of store.Store.
//
//	func TestContract(t *testing.T) {
//		storetest.Run(t, storetest.Config{
//			New: func(t *testing.T) store.Store { return newEmptyStore(t) },
//		})
//	}
//
// Each line of the contract is a subtest, and none is skipped. If a backend declares that it
// lacks a condition, the subtest checks that it refuses the condition as the contract demands.
package storetest

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// Config describes the backend under test.
type Config struct {
	// New returns an empty store that no other test uses. Run calls it once for each subtest.
	New func(t *testing.T) store.Store
	// Reopen returns another handle on the same objects, as another process would open it. If it is nil, the subtests
	// use the handle of New twice.
	Reopen func(t *testing.T, s store.Store) store.Store
	// Light runs a tenth of the rounds of each race, as -short does. It is for a further
	// configuration of a backend, if another test runs all rounds.
	Light bool
	// Precision is the unit to which the backend rounds mod times down.
	Precision time.Duration
}

// suite is the contract, line by line.
var suite = []struct {
	line string
	test func(*testing.T, *fixture)
}{
	{"put is read back", putIsReadBack},
	{"put keeps no reference to the body", putCopies},
	{"get heeds its limit", getLimit},
	{"get returns not found", getNotFound},
	{"delete removes", deleteRemoves},
	{"delete all reports what it deletes", deleteAll},
	{"mod time and now are one clock", oneClock},

	{"list is in byte order", listOrder},
	{"list takes any prefix", listPrefix},
	{"list skips no folder that it can read", listSkipping},
	{"list returns pages", listPages},
	{"list shows what get and put show, and each body has its etag", listAgrees},
	{"list shows every put of another handle", listAfterPut},
	{"list never misses what is overwritten", listUnderOverwrites},

	{"if absent", ifAbsent},
	{"if absent has one winner", ifAbsentRace},
	{"if match", ifMatch},
	{"if match writes nothing where there is nothing", ifMatchOfNothing},
	{"if match loses no increment", ifMatchIncrements},
	{"if match never revives what was deleted", ifMatchAgainstDelete},
	{"delete if match", deleteIfMatch},
	{"delete if match removes nothing newer", deleteIfMatchAgainstPut},

	{"replaces is either ignored or heeded", replaces},

	{"watch gives a hint of a deletion, or is unsupported", watchHints},

	{"reads are never torn", noTornReads},
	{"bad keys are refused", badKeys},
	{"good keys are taken", goodKeys},
	{"an ended context is heeded", endedContext},
	{"properties never change", propertiesStay},
}

// Run runs all subtests, each on a store of its own.
func Run(t *testing.T, c Config) {
	t.Helper()
	c.Light = c.Light || testing.Short()
	for _, line := range suite {
		t.Run(line.line, func(t *testing.T) {
			f := &fixture{Config: c, store: c.New(t)}
			f.other = f.store
			if c.Reopen != nil {
				f.other = c.Reopen(t, f.store)
			}
			line.test(t, f)
		})
	}
}

// limit is the limit of each Get, in bytes. Every body of these tests is smaller.
const limit = 1 << 20

// fixture is a fresh store and a second handle on it.
type fixture struct {
	Config
	store, other store.Store
}

func (f *fixture) put(t *testing.T, key, body string) store.Object {
	t.Helper()
	obj, err := f.store.Put(t.Context(), key, []byte(body), store.PutOptions{})
	assert.OK(t, err)
	return obj
}

func (f *fixture) get(t *testing.T, key string) (string, store.Object) {
	t.Helper()
	body, obj, err := f.store.Get(t.Context(), key, limit)
	assert.OK(t, err)
	return string(body), obj
}

func (f *fixture) delete(t *testing.T, key string) {
	t.Helper()
	assert.OK(t, f.store.Delete(t.Context(), key))
}

func (f *fixture) rounds(n int) int {
	if f.Light {
		return max(n/10, 1)
	}
	return n
}

// maxEmpty is the number of pages in a row that can be empty.
const maxEmpty = 10_000

func list(t *testing.T, s store.Store, prefix string) []store.Object {
	t.Helper()
	return listFrom(t, s, prefix, "")
}

// listFrom returns the rest of a listing, from a cursor on. It ends on any store, because each page must begin after
// the previous one.
func listFrom(t *testing.T, s store.Store, prefix, cursor string) []store.Object {
	t.Helper()
	var objects []store.Object
	for empty := 0; ; empty++ {
		page, err := s.List(t.Context(), prefix, cursor)
		assert.OK(t, err)
		if len(page.Objects) > 0 {
			if n := len(objects); n > 0 && page.Objects[0].Key <= objects[n-1].Key {
				t.Fatalf("the page of the cursor %q begins with %q, and the one before ends with %q", cursor, page.Objects[0].Key, objects[n-1].Key)
			}
			objects, empty = append(objects, page.Objects...), 0
		}
		if page.Next == "" {
			return objects
		}
		if page.Next == cursor || empty == maxEmpty {
			t.Fatalf("the cursor %q leads nowhere", cursor)
		}
		cursor = page.Next
	}
}

func keys(objects []store.Object) []string {
	keys := make([]string, 0, len(objects))
	for _, o := range objects {
		keys = append(keys, o.Key)
	}
	return keys
}

// together runs n goroutines at the same time, and waits for them. Every second one gets the two handles in reverse
// order.
func (f *fixture) together(n int, do func(i int, mine, theirs store.Store)) {
	start := make(chan struct{})
	var all sync.WaitGroup
	for i := range n {
		all.Go(func() {
			<-start
			if i%2 == 0 {
				do(i, f.store, f.other)
			} else {
				do(i, f.other, f.store)
			}
		})
	}
	close(start)
	all.Wait()
}

// writing puts with n goroutines through the other handle, again and again, until stop is called. next
// returns the object for a writer and its round.
func (f *fixture) writing(t *testing.T, n int, next func(w, round int) (key, body string)) (written *atomic.Int32, stop func()) {
	written = new(atomic.Int32)
	var stopped atomic.Bool
	var all sync.WaitGroup
	for w := range n {
		all.Go(func() {
			for round := 0; !stopped.Load(); round++ {
				key, body := next(w, round)
				if _, err := f.other.Put(t.Context(), key, []byte(body), store.PutOptions{}); err != nil {
					t.Errorf("put: %v", err)
					return
				}
				written.Add(1)
			}
		})
	}
	return written, func() { stopped.Store(true); all.Wait() }
}

func flag(i int) string { return fmt.Sprintf("index/lock.shared/%04d", i) }
