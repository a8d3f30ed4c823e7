package storetest_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/mem"
	"github.com/repolock/repolock/store/storetest"
)

// brokenEnv names the broken store that this process is to test.
const brokenEnv = "REPOLOCK_TEST_BROKEN"

// broken are stores that break the contract, each in one way, and the subtest that must fail.
var broken = map[string]struct {
	line string
	make func(*mem.Store) store.Store
}{
	"nothing":     {"", func(s *mem.Store) store.Store { return s }},
	"torn":        {"reads_are_never_torn", func(s *mem.Store) store.Store { return &torn{s} }},
	"stale list":  {"list_shows_every_put_of_another_handle", func(s *mem.Store) store.Store { return &staleList{Store: s} }},
	"gap":         {"list_never_misses_what_is_overwritten", func(s *mem.Store) store.Store { return &gap{s} }},
	"unsorted":    {"list_is_in_byte_order", func(s *mem.Store) store.Store { return &unsorted{s} }},
	"racy absent": {"if_absent_has_one_winner", func(s *mem.Store) store.Store { return &racyAbsent{s} }},
	"racy match":  {"if_match_loses_no_increment", func(s *mem.Store) store.Store { return &racyMatch{s} }},
	"creates":     {"if_match_writes_nothing_where_there_is_nothing", func(s *mem.Store) store.Store { return &creates{s} }},
	"ignores":     {"if_match", func(s *mem.Store) store.Store { return &ignores{s} }},
	"fast clock":  {"mod_time_and_now_are_one_clock", func(s *mem.Store) store.Store { return &fastClock{s} }},
	"no limit":    {"get_gives_too_large_beyond_its_limit", func(s *mem.Store) store.Store { return &noLimit{s} }},
	"no context":  {"an_ended_context_is_heeded", func(s *mem.Store) store.Store { return &noContext{s} }},
	"lossy pages": {"list_gives_pages", func(s *mem.Store) store.Store { return &lossyPages{s} }},
	"few a page":  {"", func(s *mem.Store) store.Store { return &fewAPage{s} }},
	"endless":     {"list_gives_pages", func(s *mem.Store) store.Store { return &endless{s} }},
	"no match":    {"if_match_loses_no_increment", func(s *mem.Store) store.Store { return &noMatch{s} }},
	"racy delete": {"delete_if_match_removes_nothing_newer", func(s *mem.Store) store.Store { return &racyDelete{s} }},
	"any delete":  {"delete_if_match", func(s *mem.Store) store.Store { return &anyDelete{s} }},
	"false batch": {"delete_all_deletes_what_it_says", func(s *mem.Store) store.Store { return &falseBatch{s} }},
	"large batch": {"delete_all_deletes_what_it_says", func(s *mem.Store) store.Store { return &largeBatch{s} }},
	"small batch": {"", func(s *mem.Store) store.Store { return &smallBatch{s} }},
	"mute":        {"watch_gives_a_hint_of_a_deletion,_or_is_unsupported", func(s *mem.Store) store.Store { return &mute{s} }},
	"failed list": {"list_never_misses_what_is_overwritten", func(s *mem.Store) store.Store { return &failedList{s} }},
}

type (
	torn      struct{ *mem.Store }
	staleList struct {
		*mem.Store
		mu   sync.Mutex
		last map[string]store.Page
		at   time.Time
	}
	gap        struct{ *mem.Store }
	unsorted   struct{ *mem.Store }
	racyAbsent struct{ *mem.Store }
	racyMatch  struct{ *mem.Store }
	creates    struct{ *mem.Store }
	ignores    struct{ *mem.Store }
	fastClock  struct{ *mem.Store }
	noLimit    struct{ *mem.Store }
	noContext  struct{ *mem.Store }
	lossyPages struct{ *mem.Store }
	fewAPage   struct{ *mem.Store }
	endless    struct{ *mem.Store }
	noMatch    struct{ *mem.Store }
	racyDelete struct{ *mem.Store }
	anyDelete  struct{ *mem.Store }
	failedList struct{ *mem.Store }
	falseBatch struct{ *mem.Store }
	largeBatch struct{ *mem.Store }
	smallBatch struct{ *mem.Store }
	mute       struct{ *mem.Store }
)

// dawdle gives the others time for a race that must not happen.
func dawdle() {
	for range 50 {
		runtime.Gosched()
	}
}

// Put writes in two steps.
func (s *torn) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts == (store.PutOptions{}) {
		if _, err := s.Store.Put(ctx, key, body[:len(body)/2], opts); err != nil {
			return store.Object{}, err
		}
		dawdle()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// List answers from a cache that is a little old.
func (s *staleList) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Since(s.at) > time.Millisecond {
		s.at, s.last = time.Now(), map[string]store.Page{}
	}
	if page, ok := s.last[prefix+"\x00"+cursor]; ok {
		return page, nil
	}
	page, err := s.Store.List(ctx, prefix, cursor)
	s.last[prefix+"\x00"+cursor] = page
	return page, err
}

// Put deletes what was there first.
func (s *gap) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts == (store.PutOptions{}) {
		if err := s.Store.Delete(ctx, key); err != nil {
			return store.Object{}, err
		}
		dawdle()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// DeleteIfMatch looks and deletes in two steps.
func (s *racyDelete) DeleteIfMatch(ctx context.Context, key, etag string) error {
	if _, obj, err := s.Store.Get(ctx, key, 1<<20); err != nil || obj.ETag != etag {
		return store.ErrPrecondition
	}
	dawdle()
	return s.Store.Delete(ctx, key)
}

// DeleteIfMatch heeds no condition.
func (s *anyDelete) DeleteIfMatch(ctx context.Context, key, _ string) error {
	return s.Store.Delete(ctx, key)
}

// List is in the order in which directories are walked.
func (s *unsorted) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	slices.SortFunc(page.Objects, func(a, b store.Object) int {
		return slices.Compare(strings.Split(a.Key, "/"), strings.Split(b.Key, "/"))
	})
	return page, err
}

// Put looks first and then writes.
func (s *racyAbsent) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts.IfAbsent {
		if _, _, err := s.Store.Get(ctx, key, 1<<20); err == nil {
			return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
		}
		opts.IfAbsent = false
		dawdle()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// Put looks first and then writes.
func (s *racyMatch) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts.IfMatch != "" {
		if _, obj, err := s.Store.Get(ctx, key, 1<<20); err != nil || obj.ETag != opts.IfMatch {
			return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
		}
		opts.IfMatch = ""
		dawdle()
	}
	return s.Store.Put(ctx, key, body, opts)
}

// Put ignores the condition where there is no object.
func (s *creates) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if _, _, err := s.Store.Get(ctx, key, 1<<20); errors.Is(err, store.ErrNotFound) {
		opts.IfMatch = ""
	}
	return s.Store.Put(ctx, key, body, opts)
}

// Put ignores the condition that is declared as kept.
func (s *ignores) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	opts.IfMatch = ""
	return s.Store.Put(ctx, key, body, opts)
}

// List returns a time in the future.
func (s *fastClock) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	page.Now = page.Now.Add(time.Second)
	return page, err
}

// Get gives any size.
func (s *noLimit) Get(ctx context.Context, key string, _ int64) ([]byte, store.Object, error) {
	return s.Store.Get(ctx, key, 1<<20)
}

// Put is applied although its context has ended.
func (s *noContext) Put(_ context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	return s.Store.Put(context.Background(), key, body, opts)
}

// List leaves out the last object of a page.
func (s *lossyPages) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, cursor)
	if n := len(page.Objects); n > 100 {
		page.Objects = page.Objects[:n-1]
	}
	return page, err
}

// List keeps the contract: a page may have fewer objects than there are, or none.
func (s *fewAPage) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	from, empty := strings.CutSuffix(cursor, "|none yet")
	page, err := s.Store.List(ctx, prefix, from)
	n := min(len(page.Objects), 1+len(cursor)%7)
	switch {
	case err != nil || len(page.Objects) <= 1:
	case cursor != "" && !empty && len(page.Objects)%5 == 0:
		page.Objects, page.Next = nil, cursor+"|none yet"
	case n < len(page.Objects):
		page.Objects, page.Next = page.Objects[:n], page.Objects[n-1].Key
	}
	return page, err
}

// List never comes to an end.
func (s *endless) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.Store.List(ctx, prefix, "")
	if prefix == "index/lock.shared/" {
		page.Next = cursor + "x"
	}
	return page, err
}

// Put refuses every ETag.
func (s *noMatch) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	if opts.IfMatch != "" {
		return store.Object{}, &store.Error{Op: "put", Key: key, Err: store.ErrPrecondition}
	}
	return s.Store.Put(ctx, key, body, opts)
}

// List fails.
func (s *failedList) List(_ context.Context, prefix, _ string) (store.Page, error) {
	return store.Page{}, &store.Error{Op: "list", Key: prefix, Err: store.ErrPermission}
}

// DeleteAll leaves out a key, and reports it as deleted.
func (s *falseBatch) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted, err := s.Store.DeleteAll(ctx, keys[1:])
	return append([]bool{err == nil}, deleted...), err
}

// DeleteAll takes the keys for prefixes.
func (s *largeBatch) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	if err := s.Store.Delete(ctx, keys[1]+"/below"); err != nil {
		return make([]bool, len(keys)), err
	}
	return s.Store.DeleteAll(ctx, keys)
}

// DeleteAll keeps the contract: it can leave out keys if it says so.
func (s *smallBatch) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted, err := s.Store.DeleteAll(ctx, keys[1:])
	return append([]bool{false}, deleted...), err
}

// TestBroken runs the suite on stores that break the contract. Each runs in a process of its
// own, since the suite must fail there, and must neither hang nor panic.
func TestBroken(t *testing.T) {
	if name := os.Getenv(brokenEnv); name != "" {
		storetest.Run(t, storetest.Config{
			New: func(*testing.T) store.Store { return broken[name].make(mem.New(mem.Options{})) },
		})
		return
	}
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	for name, b := range broken {
		t.Run(name, func(t *testing.T) {
			cmd := exec.CommandContext(t.Context(), exe, "-test.run=^TestBroken$")
			cmd.Env = append(os.Environ(), brokenEnv+"="+name)
			out, err := cmd.CombinedOutput()
			noticed := bytes.Contains(out, []byte("--- FAIL: TestBroken/"+b.line+" "))
			if bytes.Contains(out, []byte("panic: ")) || (err != nil) != (b.line != "") || b.line != "" && !noticed {
				t.Errorf("%q didn't notice: %v\n%s", b.line, err, out)
			}
		})
	}
}

// Watch says that it gives hints, and gives none.
func (s *mute) Watch(ctx context.Context, _ string) (<-chan struct{}, error) {
	return make(chan struct{}), ctx.Err()
}
