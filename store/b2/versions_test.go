package b2_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/rounds"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

// watched is serve, but fails the test if a reader could see an older version after a newer one.
func watched(t *testing.T, opts fakeb2.Options) *fake {
	t.Helper()
	newest := map[string]int64{}
	opts.Changed = func(c fakeb2.Change) {
		if v := c.Visible(); v != nil {
			assert.That(t, v.Timestamp >= newest[c.Name], "%s uncovered %q under %s", c.Call, v.Body, c.Name)
			newest[c.Name] = max(newest[c.Name], v.Timestamp)
		}
	}
	return serve(t, opts)
}

// TestDeleteLeavesNothing: Delete removes the versions of all writers, also those under a hide marker.
func TestDeleteLeavesNothing(t *testing.T) {
	for _, n := range []int{1, 2, 6, 7, 8, 30} {
		f := watched(t, fakeb2.Options{PageSize: 7})
		for i := range n {
			put(t, f.open(t), "a/k", fmt.Sprint(i))
			if n < 6 {
				f.hide(t, "a/k")
			}
		}
		put(t, f.open(t), "a/k2", "another")
		put(t, f.open(t), "a/k/x", "another one")
		assert.Is(t, f.open(t).Delete(t.Context(), "a/k"), nil)
		f.has(t, "another one", "another")
	}
}

// TestPutsLeaveOne: a put removes the version that the same store has put before. A refresh leaves one
// version, also of other writers.
func TestPutsLeaveOne(t *testing.T) {
	f := watched(t, fakeb2.Options{})
	s := f.open(t)
	put(t, s, "k", "1")
	put(t, s, "k", "2")
	f.has(t, "2")
	put(t, f.open(t), "k", "another's")
	o := put(t, s, "k", "3")
	f.has(t, "3", "another's")
	for i := range 5 {
		o = replace(t, s, "k", fmt.Sprint(i), o.ETag)
		f.has(t, fmt.Sprint(i))
	}
	put(t, f.open(t), "k", "another's")
	o = put(t, f.open(t), "k", "another's, again")
	replace(t, s, "k", "ours", o.ETag)
	f.has(t, "ours")
}

// TestReplacesWhatIsGone: if an object was deleted, hidden or replaced between a look and a put, the put
// changes nothing. If its key can't delete, the store covers the put with the version before, unless another
// client's put covers it already.
func TestReplacesWhatIsGone(t *testing.T) {
	nothing := func(*testing.T, *fake) {}
	deleted := func(t *testing.T, f *fake) { f.delete(t, "k") }
	hidden := func(t *testing.T, f *fake) { f.hide(t, "k") }
	replaced := func(t *testing.T, f *fake) { put(t, f.open(t), "k", "2") }
	emptied := func(t *testing.T, f *fake) { put(t, f.open(t), "k", "") }
	covered := func(t *testing.T, f *fake) {
		hidden(t, f)
		var once sync.Once
		f.Before(func(call string, _ *http.Request) {
			if call == "b2_list_file_versions" {
				once.Do(func() { replaced(t, f) })
			}
		})
	}
	for name, test := range map[string]struct {
		key       fakeb2.Key
		meanwhile func(*testing.T, *fake)
		left      []string
	}{
		"deleted":             {fakeb2.Key{}, deleted, nil},
		"hidden":              {fakeb2.Key{}, hidden, []string{"-", "1"}},
		"replaced":            {fakeb2.Key{}, replaced, []string{"2", "1"}},
		"made anew":           {fakeb2.Key{}, func(t *testing.T, f *fake) { deleted(t, f); replaced(t, f) }, []string{"2"}},
		"nothing, no delete":  {noDelete, nothing, []string{"new", "1"}},
		"deleted, no delete":  {noDelete, deleted, []string{"-", "new"}},
		"hidden, no delete":   {noDelete, hidden, []string{"-", "new", "-", "1"}},
		"replaced, no delete": {noDelete, replaced, []string{"2", "new", "2", "1"}},
		"emptied, no delete":  {noDelete, emptied, []string{"", "new", "", "1"}},
		"covered, no delete":  {noDelete, covered, []string{"2", "new", "-", "1"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			s := f.openAs(t, test.key)
			o := put(t, s, "k", "1")
			test.meanwhile(t, f)
			_, err := s.Put(t.Context(), "k", []byte("new"), store.PutOptions{Replaces: o.ETag})
			want := store.ErrPrecondition
			if test.left != nil && test.left[0] == "new" {
				want = nil
			}
			assert.Is(t, err, want)
			f.has(t, test.left...)
		})
	}
}

// TestUnsettled: if the look after a put fails, or the removal of a late put, the next put first repeats it.
func TestUnsettled(t *testing.T) {
	for name, c := range map[string]struct {
		failing string
		deleted bool
	}{
		"the look": {"b2_list_file_versions", false}, "the look at nothing": {"b2_list_file_versions", true}, "the removal": {"b2_delete_file_version", true},
	} {
		t.Run(name, func(t *testing.T) {
			f, s, first := stored(t, "1")
			if c.deleted {
				f.delete(t, "k")
			}
			f.Fail(c.failing, 1, 503, "service_unavailable")
			err := assert.Err(s.Put(t.Context(), "k", []byte("2"), store.PutOptions{Replaces: first.ETag}))
			assert.That(t, err != nil && !store.Permanent(err), "%v", err)
			_, seen, err := s.Get(t.Context(), "k", 100)
			assert.OK(t, err)
			_, err = s.Put(t.Context(), "k", []byte("3"), store.PutOptions{Replaces: seen.ETag})
			if c.deleted {
				assert.Is(t, err, store.ErrPrecondition)
				f.has(t)
			} else {
				assert.Is(t, err, nil)
				f.has(t, "3")
			}
		})
	}
}

// stage has its actors send one request at a time, in an order that the test chooses.
type stage struct {
	*fake
	actors  []*actor
	arrived chan *actor // receives an actor that has sent a request, or has ended
	off     bool        // requests aren't held back
}

// actor is a process with one task.
type actor struct {
	*b2.Store
	keyID   string
	proceed chan struct{}
	ended   bool
	err     error
}

func newStage(t *testing.T, f *fake, keys ...fakeb2.Key) *stage {
	t.Helper()
	g := &stage{fake: f, arrived: make(chan *actor), off: true}
	for _, k := range keys {
		a := &actor{Store: g.openAs(t, k), proceed: make(chan struct{})}
		a.keyID = fmt.Sprintf("%04x", g.keys.Load()+0x1000)
		g.actors = append(g.actors, a)
		// Sessions and upload URLs exist before the test begins.
		put(t, a, "warm/up", "")
		assert.OK(t, a.Delete(t.Context(), "warm/up"))
	}
	g.Before(func(_ string, r *http.Request) {
		for _, a := range g.actors {
			if !g.off && strings.HasPrefix(r.Header.Get("Authorization"), "4_"+a.keyID+"_") {
				g.arrived <- a
				<-a.proceed
			}
		}
	})
	return g
}

// play has each actor do its deed with an object. next chooses which of the waiting actors sends the next request.
func (g *stage) play(ctx context.Context, deeds []deed, o store.Object, next func(waiting int) int) {
	g.off = false
	for i, a := range g.actors {
		a.ended = false
		go func() {
			a.err = deeds[i](ctx, a.Store, o)
			a.ended = true
			g.arrived <- a
		}()
	}
	var waiting []*actor
	for busy := len(g.actors); busy > 0; {
		a := <-g.arrived
		busy--
		if !a.ended {
			waiting = append(waiting, a)
		}
		if busy > 0 || len(waiting) == 0 {
			continue
		}
		// A choice must mean the same actor each time.
		slices.SortFunc(waiting, func(a, b *actor) int { return strings.Compare(a.keyID, b.keyID) })
		i := next(len(waiting))
		chosen := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		busy++
		chosen.proceed <- struct{}{}
	}
	g.off = true
}

// orders calls run with every order in which the actors can send their requests. After 50 orders the short
// suite tries no alternatives to every third choice.
func orders(t *testing.T, run func(next func(waiting int) int)) {
	n := 0
	for todo := [][]int{nil}; len(todo) > 0 && !t.Failed(); n++ {
		choices, at := todo[len(todo)-1], 0
		todo = todo[:len(todo)-1]
		run(func(waiting int) int {
			if at == len(choices) {
				for other := 1; other < waiting && (n < rounds.Fewer(math.MaxInt, 50) || at%3 > 0); other++ {
					todo = append(todo, append(slices.Clone(choices), other))
				}
				choices = append(choices, 0)
			}
			at++
			return choices[at-1]
		})
	}
	t.Logf("%d orders", n)
	assert.That(t, n > 1, "there was nothing to order")
}

// TestEveryOrder: processes change one object at the same time, with every order of their requests.
// Readers never see a wrong version.
func TestEveryOrder(t *testing.T) {
	all := fakeb2.Key{}
	for _, test := range []struct {
		name  string
		keys  []fakeb2.Key
		deeds []deed
		// seen are the bodies that a reader may get in the end, "" for no object.
		seen []string
		// left is the largest number of versions in the end.
		left int
	}{
		{"replace, delete", []fakeb2.Key{all, all}, []deed{replaceBy("new"), remove}, []string{""}, 0},
		{"replace, delete, delete", []fakeb2.Key{all, all, all}, []deed{replaceBy("new"), remove, remove}, []string{""}, 0},
		{"replace, hide", []fakeb2.Key{all, noDelete}, []deed{replaceBy("new"), remove}, []string{""}, 2},
		{"replace and no delete, hide", []fakeb2.Key{noDelete, noDelete}, []deed{replaceBy("new"), remove}, []string{""}, 4},
		{"replace, overwrite", []fakeb2.Key{all, all}, []deed{replaceBy("new"), overwrite}, []string{"overwritten"}, 2},
		{"replace and no delete, overwrite", []fakeb2.Key{noDelete, all}, []deed{replaceBy("new"), overwrite}, []string{"overwritten"}, 4},
		{"replace, replace", []fakeb2.Key{all, all}, []deed{replaceBy("1"), replaceBy("2")}, []string{"1", "2"}, 1},
		{"delete, delete", []fakeb2.Key{all, all}, []deed{remove, remove}, []string{""}, 0},
		{"delete, hide", []fakeb2.Key{all, noDelete}, []deed{remove, remove}, []string{""}, 1},
		{"delete, overwrite", []fakeb2.Key{all, all}, []deed{remove, overwrite}, []string{"", "overwritten"}, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			start := watched
			if slices.Contains(test.seen, "overwritten") || slices.Contains(test.seen, "1") {
				start = serve // because a put that is taken back makes the version before visible again
			}
			g := newStage(t, start(t, fakeb2.Options{}), test.keys...)
			reader, n := g.open(t), 0
			orders(t, func(next func(int) int) {
				n++
				o := put(t, reader, fmt.Sprintf("k%d", n), "old")
				g.play(t.Context(), test.deeds, o, next)
				for i, a := range g.actors {
					assert.That(t, a.err == nil || errors.Is(a.err, store.ErrPrecondition), "actor %d: %v", i, a.err)
				}
				body, _, err := reader.Get(t.Context(), o.Key, 100)
				assert.That(t, err == nil || errors.Is(err, store.ErrNotFound), "%v", err)
				assert.That(t, slices.Contains(test.seen, string(body)), "in the end %q is seen", body)
				left := slices.DeleteFunc(g.Versions(bucket), func(v fakeb2.Version) bool { return v.Name != prefix+o.Key })
				assert.That(t, len(left) <= test.left, "%d versions are left", len(left))
				if log := g.TakeLog(); t.Failed() {
					t.Logf("%v", log)
				}
			})
		})
	}
}
