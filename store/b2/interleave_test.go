package b2_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

// stage makes its actors send one request at a time, in an order that the test chooses.
type stage struct {
	*fake
	actors  []*actor
	arrived chan *actor // with a request, or with its end
	off     bool        // requests just pass
}

// actor is a process with one task.
type actor struct {
	*b2.Store
	keyID   string
	proceed chan struct{}
	ended   bool
	err     error
}

func newStage(t *testing.T, opts fakeb2.Options, keys ...fakeb2.Key) *stage {
	t.Helper()
	g := &stage{fake: serve(t, opts), arrived: make(chan *actor), off: true}
	for _, k := range keys {
		a := &actor{Store: g.openAs(t, k), proceed: make(chan struct{})}
		a.keyID = fmt.Sprintf("%04x", g.keys.Load()+0x1000)
		g.actors = append(g.actors, a)
		// So no request of the tested part sets up a session.
		put(t, a, "warm/up", "")
		if err := a.Delete(t.Context(), "warm/up"); err != nil {
			t.Fatal(err)
		}
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

// play runs all actors to their end. next returns which of the waiting actors sends the next
// request.
func (g *stage) play(do []func(*actor) error, next func(waiting int) int) {
	g.off = false
	for i, a := range g.actors {
		a.ended = false
		go func() {
			a.err = do[i](a)
			a.ended = true // its end arrives like a request
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
		// The actors are in the order of their keys, so that a choice means the same each
		// time.
		slices.SortFunc(waiting, func(a, b *actor) int { return strings.Compare(a.keyID, b.keyID) })
		i := next(len(waiting))
		chosen := waiting[i]
		waiting = slices.Delete(waiting, i, i+1)
		busy++
		chosen.proceed <- struct{}{}
	}
	g.off = true
}

// orders calls run with every order in which the actors can send their requests.
func orders(t *testing.T, run func(next func(waiting int) int)) {
	var choices, of []int // the choices, each of so many
	for n := 0; ; n++ {
		at := 0
		run(func(waiting int) int {
			if at == len(choices) {
				choices, of = append(choices, 0), append(of, waiting)
			}
			of[at] = waiting
			at++
			return choices[at-1]
		})
		choices, of = choices[:at], of[:at]
		for len(choices) > 0 && choices[len(choices)-1] == of[len(of)-1]-1 {
			choices, of = choices[:len(choices)-1], of[:len(of)-1]
		}
		if len(choices) == 0 {
			t.Logf("%d orders", n+1)
			if n == 0 {
				t.Error("there was nothing to order")
			}
			return
		}
		choices[len(choices)-1]++
		if t.Failed() {
			return
		}
	}
}

// deed is the task of an actor with an object.
type deed func(a *actor, ctx context.Context, o store.Object) error

func remove(a *actor, ctx context.Context, o store.Object) error { return a.Delete(ctx, o.Key) }

func replaceBy(body string) deed {
	return func(a *actor, ctx context.Context, o store.Object) error {
		_, err := a.Put(ctx, o.Key, []byte(body), store.PutOptions{Replaces: o.ETag})
		return err
	}
}

func overwrite(a *actor, ctx context.Context, o store.Object) error {
	_, err := a.Put(ctx, o.Key, []byte("overwritten"), store.PutOptions{})
	return err
}

// TestEveryOrder: processes act on one object at the same time, request by request in every
// order. Readers never see a wrong version.
func TestEveryOrder(t *testing.T) {
	all := fakeb2.Key{}
	noDelete := fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles", "writeFiles"}}
	for _, test := range []struct {
		name  string
		keys  []fakeb2.Key
		deeds []deed
		// seen are the bodies that readers can see in the end, "" for none.
		seen []string
		// left is the number of versions that can be left in the end.
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
			var u uncovered
			g := newStage(t, fakeb2.Options{Changed: u.changed}, test.keys...)
			reader, n := g.open(t), 0
			orders(t, func(next func(int) int) {
				n++
				o := put(t, reader, fmt.Sprintf("k%d", n), "old")
				var do []func(*actor) error
				for _, d := range test.deeds {
					do = append(do, func(a *actor) error { return d(a, t.Context(), o) })
				}
				g.play(do, next)
				for i, a := range g.actors {
					if a.err != nil && !errors.Is(a.err, store.ErrPrecondition) {
						t.Errorf("actor %d: %v", i, a.err)
					}
				}
				body, _, err := reader.Get(t.Context(), o.Key, 100)
				if err != nil && !errors.Is(err, store.ErrNotFound) {
					t.Error(err)
				}
				if !slices.Contains(test.seen, string(body)) {
					t.Errorf("in the end %q is seen", body)
				}
				if left := g.versionsOf(o.Key); len(left) > test.left {
					t.Errorf("%d versions are left", len(left))
				}
				if log := g.TakeLog(); t.Failed() {
					t.Logf("%v", log)
				}
			})
			// A put that is taken back uncovers what was visible before it.
			if !slices.Contains(test.seen, "overwritten") && !slices.Contains(test.seen, "1") {
				u.check(t)
			}
		})
	}
}

func (f *fake) versionsOf(key string) (versions []fakeb2.Version) {
	for _, v := range f.Versions(bucket) {
		if v.Name == prefix+key {
			versions = append(versions, v)
		}
	}
	return versions
}
