package doctor_test

import (
	"context"
	"sync"
	"testing"

	"github.com/repolock/repolock/cmd/internal/doctor"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
)

// gateway caches listings until something is written through it, as rclone does for five
// minutes. From its own side it looks like the store behind it.
type gateway struct {
	store.Store
	mu    sync.Mutex
	pages map[string]store.Page
}

func (g *gateway) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pages)
	return g.Store.Put(ctx, key, body, opts)
}

func (g *gateway) Delete(ctx context.Context, key string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	clear(g.pages)
	return g.Store.Delete(ctx, key)
}

func (g *gateway) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
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

// TestBothApart: two repositories aren't one.
func TestBothApart(t *testing.T) {
	r, err := doctor.Both(t.Context(), mem.New(mem.Options{}), mem.New(mem.Options{}), doctor.Options{Prefix: prefix, Locks: locks})
	if err != nil || r.Also == nil || r.Verdict.Fitness != doctor.Unfit || r.Also.Verdict.Fitness != doctor.Unfit {
		t.Errorf("%v, %+v", err, r.Verdict)
	}
}

// TestBoth: doctor detects a caching gateway from either side, and leaves nothing behind.
func TestBoth(t *testing.T) {
	for name, test := range map[string]struct {
		caches      func(m *mem.Store) (a, b store.Store)
		there, back doctor.Result
	}{
		"none": {func(m *mem.Store) (store.Store, store.Store) { return m, m }, doctor.OK, doctor.OK},
		"the second": {func(m *mem.Store) (store.Store, store.Store) {
			return m, &gateway{Store: m, pages: map[string]store.Page{}}
		}, doctor.Fail, doctor.OK},
		"the first": {func(m *mem.Store) (store.Store, store.Store) {
			return &gateway{Store: m, pages: map[string]store.Page{}}, m
		}, doctor.OK, doctor.Fail},
		"both": {func(m *mem.Store) (store.Store, store.Store) {
			return &gateway{Store: m, pages: map[string]store.Page{}}, &gateway{Store: m, pages: map[string]store.Page{}}
		}, doctor.Fail, doctor.Fail},
	} {
		t.Run(name, func(t *testing.T) {
			m := mem.New(mem.Options{})
			a, b := test.caches(m)
			r, err := doctor.Both(t.Context(), a, b, doctor.Options{Prefix: prefix, Locks: locks})
			if err != nil || r.Also == nil {
				t.Fatal(err)
			}
			there, back := check(t, r, doctor.ListAfterWrite), check(t, *r.Also, doctor.ListAfterWrite)
			if there.Result != test.there || back.Result != test.back {
				t.Errorf("there %s, want %s: %s; back %s, want %s: %s", there.Result, test.there, there.Detail, back.Result, test.back, back.Detail)
			}
			if fit := test.there == doctor.OK && test.back == doctor.OK; (r.Fitness() == doctor.Fit) != fit {
				t.Errorf("fitness %v, there %v, back %v", r.Fitness(), r.Verdict, r.Also.Verdict)
			}
			empty(t, m)
		})
	}
}
