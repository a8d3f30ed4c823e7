package storetest

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// bent is a store whose hooks change what it does.
type bent struct {
	*memory.Store
	put           func(*memory.Store, *put) error // before a Put
	get           func(s *memory.Store, key string) ([]byte, store.Object, error)
	list          func(ctx context.Context, s *memory.Store, prefix, cursor string) (store.Page, error)
	listed        func(*store.Page) // after a List
	deleteIfMatch func(s *memory.Store, key, etag string) error
	deleteAll     func(s *memory.Store, keys []string) ([]bool, error)
	mute          bool // its Watch gives no hints
}

// put is a Put under way, which a hook can change.
type put struct {
	context.Context
	key  string
	body []byte
	opts store.PutOptions
}

func (s *bent) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	p := &put{ctx, key, body, opts}
	if s.put != nil {
		if err := s.put(s.Store, p); err != nil {
			return store.Object{}, &store.Error{Op: "put", Key: key, Err: err}
		}
	}
	return s.Store.Put(p, key, body, p.opts)
}

func (s *bent) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	if s.get != nil && ctx.Err() == nil {
		return s.get(s.Store, key)
	}
	return s.Store.Get(ctx, key, limit)
}

func (s *bent) List(ctx context.Context, prefix, cursor string) (page store.Page, err error) {
	if s.list != nil {
		return s.list(ctx, s.Store, prefix, cursor)
	}
	page, err = s.Store.List(ctx, prefix, cursor)
	if s.listed != nil {
		s.listed(&page)
	}
	return page, err
}

func (s *bent) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if s.deleteIfMatch != nil {
		return s.deleteIfMatch(s.Store, key, etag)
	}
	return s.Store.DeleteIfMatch(ctx, key, etag)
}

func (s *bent) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	if s.deleteAll != nil && ctx.Err() == nil {
		return s.deleteAll(s.Store, keys)
	}
	return s.Store.DeleteAll(ctx, keys)
}

func (s *bent) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	if s.mute {
		return make(chan struct{}), ctx.Err()
	}
	return s.Store.Watch(ctx, prefix)
}

// dawdle lets other goroutines run between two steps.
func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

var anyTime = context.Background()

func matches(s *memory.Store, key, etag string) bool {
	_, obj, err := s.Get(anyTime, key, limit)
	return err == nil && obj.ETag == etag
}

// plain returns a store with a hook before each Put without options.
func plain(before func(s *memory.Store, p *put) error) bent {
	return bent{put: func(s *memory.Store, p *put) error {
		if p.opts != (store.PutOptions{}) {
			return nil
		}
		defer dawdle()
		return before(s, p)
	}}
}

// broken has stores that break the contract, each with the line that must fail, and stores that keep
// it, without a line.
var broken = map[string]struct {
	line string
	bend bent
}{
	"nothing": {"", bent{}},
	"torn: a put writes in two steps": {"reads are never torn", plain(func(s *memory.Store, p *put) error {
		return assert.Err(s.Put(p, p.key, p.body[:len(p.body)/2], p.opts))
	})},
	"gap: a put deletes what was there first": {"list never misses what is overwritten", plain(func(s *memory.Store, p *put) error { return s.Delete(p, p.key) })},
	"if absent looks first and then writes": {"if absent has one winner", bent{put: func(s *memory.Store, p *put) error {
		if _, _, err := s.Get(anyTime, p.key, limit); p.opts.IfAbsent && err == nil {
			return store.ErrPrecondition
		}
		p.opts.IfAbsent = false
		dawdle()
		return nil
	}}},
	"if match looks first and then writes": {"if match loses no increment", bent{put: func(s *memory.Store, p *put) error {
		if p.opts.IfMatch != "" && !matches(s, p.key, p.opts.IfMatch) {
			return store.ErrPrecondition
		}
		p.opts.IfMatch = ""
		dawdle()
		return nil
	}}},
	"if match creates": {"if match writes nothing where there is nothing", bent{put: func(s *memory.Store, p *put) error {
		if _, _, err := s.Get(anyTime, p.key, limit); errors.Is(err, store.ErrNotFound) {
			p.opts.IfMatch = ""
		}
		return nil
	}}},
	"if match is ignored, and declared as kept": {"if match", bent{put: func(_ *memory.Store, p *put) error {
		p.opts.IfMatch = ""
		return nil
	}}},
	"if match refuses every ETag": {"if match loses no increment", bent{put: func(_ *memory.Store, p *put) error {
		if p.opts.IfMatch != "" {
			return store.ErrPrecondition
		}
		return nil
	}}},
	"a put is applied although its context has ended": {"an ended context is heeded", bent{put: func(_ *memory.Store, p *put) error {
		p.Context = anyTime
		return nil
	}}},
	"get returns any size": {"get heeds its limit", bent{get: func(s *memory.Store, key string) ([]byte, store.Object, error) {
		return s.Get(anyTime, key, limit)
	}}},
	"list answers from a cache": {"list shows every put of another handle", bent{list: func() func(context.Context, *memory.Store, string, string) (store.Page, error) {
		old := make(chan store.Page, 1)
		return func(ctx context.Context, s *memory.Store, prefix, cursor string) (store.Page, error) {
			page, err := s.List(ctx, prefix, cursor)
			if prefix != "index/lock." {
				return page, err
			}
			select {
			case page = <-old:
			default:
				old <- page
			}
			return page, err
		}
	}()}},
	"list is in the order in which directories are walked": {"list is in byte order", bent{listed: func(page *store.Page) {
		slices.SortFunc(page.Objects, func(a, b store.Object) int {
			return slices.Compare(strings.Split(a.Key, "/"), strings.Split(b.Key, "/"))
		})
	}}},
	"list returns a time in the future": {"mod time and now are one clock", bent{listed: func(page *store.Page) { page.Now = page.Now.Add(time.Second) }}},
	"list leaves out the last object of a page": {"list returns pages", bent{listed: func(page *store.Page) {
		if n := len(page.Objects); n > 100 {
			page.Objects = page.Objects[:n-1]
		}
	}}},
	"list never ends": {"list returns pages", bent{list: func(ctx context.Context, s *memory.Store, prefix, cursor string) (store.Page, error) {
		page, err := s.List(ctx, prefix, "")
		if prefix == "index/lock.shared/" {
			page.Next = cursor + "x"
		}
		return page, err
	}}},
	"list fails": {"list never misses what is overwritten", bent{list: func(_ context.Context, _ *memory.Store, prefix, _ string) (store.Page, error) {
		return store.Page{}, &store.Error{Op: "list", Key: prefix, Err: store.ErrPermission}
	}}},
	"a page may have fewer objects than there are, or none": {"", bent{list: func(ctx context.Context, s *memory.Store, prefix, cursor string) (store.Page, error) {
		from, empty := strings.CutSuffix(cursor, "|none yet")
		page, err := s.List(ctx, prefix, from)
		n := min(len(page.Objects), 1+len(cursor)%7)
		switch {
		case err != nil || len(page.Objects) <= 1:
		case cursor != "" && !empty && len(page.Objects)%5 == 0:
			page.Objects, page.Next = nil, cursor+"|none yet"
		case n < len(page.Objects):
			page.Objects, page.Next = page.Objects[:n], page.Objects[n-1].Key
		}
		return page, err
	}}},
	"a conditional deletion looks and deletes in two steps": {"delete if match removes nothing newer", bent{deleteIfMatch: func(s *memory.Store, key, etag string) error {
		if !matches(s, key, etag) {
			return store.ErrPrecondition
		}
		dawdle()
		return s.Delete(anyTime, key)
	}}},
	"a conditional deletion heeds no condition": {"delete if match", bent{deleteIfMatch: func(s *memory.Store, key, _ string) error {
		return s.Delete(anyTime, key)
	}}},
	"a batch reports a key as deleted that it leaves out": {"delete all reports what it deletes", bent{deleteAll: func(s *memory.Store, keys []string) ([]bool, error) {
		deleted, err := s.DeleteAll(anyTime, keys[1:])
		return append([]bool{err == nil}, deleted...), err
	}}},
	"a batch takes a key for a prefix": {"delete all reports what it deletes", bent{deleteAll: func(s *memory.Store, keys []string) ([]bool, error) {
		_ = s.Delete(anyTime, keys[1]+"/below")
		return s.DeleteAll(anyTime, keys)
	}}},
	"a batch may leave out keys if it reports that": {"", bent{deleteAll: func(s *memory.Store, keys []string) ([]bool, error) {
		deleted, err := s.DeleteAll(anyTime, keys[1:])
		return append([]bool{false}, deleted...), err
	}}},
	"watch gives no hints": {"watch gives a hint of a deletion, or is unsupported", bent{mute: true}},
}

// brokenEnv is set in the process that runs the suite on broken stores.
const brokenEnv = "REPOLOCK_TEST_BROKEN"

// TestBroken runs the suite on stores that break the contract. It uses another process, because the
// suite must fail there. The suite must neither hang nor panic. No line waits in real time.
func TestBroken(t *testing.T) {
	if os.Getenv(brokenEnv) != "" {
		for name, b := range broken {
			for _, line := range suite {
				t.Run(name+"/"+line.line, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) {
						s := b.bend
						s.Store = memory.New(memory.Options{})
						line.test(t, &fixture{store: &s, other: &s})
					})
				})
			}
		}
		return
	}
	exe, err := os.Executable()
	assert.OK(t, err)
	cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestBroken$")
	cmd.Env = append(os.Environ(), brokenEnv+"=1")
	out, _ := cmd.CombinedOutput()
	says := string(out)
	for name, b := range broken {
		failed := "--- FAIL: TestBroken/" + strings.ReplaceAll(name, " ", "_") + "/"
		if b.line == "" {
			assert.That(t, !strings.Contains(says, failed), "%s: no line must fail", name)
			continue
		}
		fails := failed + strings.ReplaceAll(b.line, " ", "_") + " "
		assert.That(t, strings.Contains(says, fails), "%s: the line that must fail, %q, didn't", name, b.line)
	}
	assert.That(t, !t.Failed() && !strings.Contains(says, "panic: "), "%s", says)
}
