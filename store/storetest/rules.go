package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/store"
)

// sealed returns a body of about size bytes with a checksum, which shows whether a part
// of it is another body's.
func sealed(seed, size int) string {
	body := strings.Repeat(fmt.Sprintf("%08d", seed), size/8)
	return fmt.Sprintf("%08x%s", crc32.ChecksumIEEE([]byte(body)), body)
}

func unbroken(body string) bool {
	return len(body) >= 8 && body[:8] == fmt.Sprintf("%08x", crc32.ChecksumIEEE([]byte(body[8:])))
}

func noTornReads(t *testing.T, f *fixture) {
	sizes := []int{100, 5_000, 70_000}
	f.put(t, "a/k", sealed(0, 100))
	written, stop := f.writing(t, 3, func(w, n int) (key, body string) {
		return "a/k", sealed(w*1_000_000+n, sizes[n%len(sizes)])
	})
	defer stop()
	for round := 0; round < f.rounds(300) || int(written.Load()) < f.rounds(100) && !t.Failed(); round++ {
		body, obj, err := f.store.Get(t.Context(), "a/k", limit)
		if err != nil {
			t.Errorf("get: %v", err)
			return
		}
		if !unbroken(string(body)) || obj.Size != int64(len(body)) {
			t.Errorf("read %d bytes that nobody wrote, said to be %d", len(body), obj.Size)
			return
		}
	}
}

func badKeys(t *testing.T, f *fixture) {
	f.put(t, "a/b", "")
	for _, key := range []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "./a", "a/.", "a/..", "../a", "a/../b", "a/./b",
		"a\x00b", `a\b`, `..\a`, "a\xff", strings.Repeat("a/", 512) + "a",
	} {
		_, err := f.store.Put(t.Context(), key, []byte("x"), store.PutOptions{})
		if !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("put %q: %v", key, err)
		}
		if _, _, err := f.store.Get(t.Context(), key, limit); !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("get %q: %v", key, err)
		}
		if err := f.store.Delete(t.Context(), key); !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("delete %q: %v", key, err)
		}
	}
	if diff := cmp.Diff([]string{"a/b"}, keys(list(t, f.store, ""))); diff != "" {
		t.Error(diff)
	}
}

// goodKeys puts, lists and deletes keys of the lock, and others that look invalid.
func goodKeys(t *testing.T, f *fixture) {
	for _, key := range []string{
		"index/lock.exclusive",
		"index/lock.intent/20260102T030405.678901234Z-0123456789abcdef0123456789abcdef",
		"index/locks/a name/lock.shared/x", "...", "..a", "a..", ".hidden", "~", "%2e%2e", "ümläut/日本", "-rf", "$HOME",
		strings.Repeat("abcdefg/", 60) + "end",
	} {
		f.put(t, key, key)
		if body, _ := f.get(t, key); body != key {
			t.Errorf("%q: got %q", key, body)
		}
		if got := keys(list(t, f.store, key)); len(got) != 1 || got[0] != key {
			t.Errorf("%q: listed %q", key, got)
		}
		f.delete(t, key)
	}
	if got := keys(list(t, f.store, "")); len(got) != 0 {
		t.Errorf("left: %q", got)
	}
}

func endedContext(t *testing.T, f *fixture) {
	f.put(t, "k", "body")
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: ended(), context.DeadlineExceeded: late} {
		for name, err := range f.requests(ctx, "k") {
			if !errors.Is(err, want) {
				t.Errorf("%s: %v", name, err)
			}
			if store.Permanent(err) {
				t.Errorf("%s: %v is permanent", name, err)
			}
		}
	}
	f.holds(t, "k", "body")
}

// requests sends one request of each kind and returns the errors.
func (f *fixture) requests(ctx context.Context, key string) map[string]error {
	_, put := f.store.Put(ctx, key, []byte("new"), store.PutOptions{})
	_, _, get := f.store.Get(ctx, key, limit)
	_, list := f.store.List(ctx, key, "")
	return map[string]error{"put": put, "get": get, "list": list, "delete": f.store.Delete(ctx, key)}
}

func errorsTell(t *testing.T, f *fixture) {
	for name, err := range f.requests(ended(), "a key") {
		var e *store.Error
		if !errors.As(err, &e) || e.Op != name || e.Key != "a key" {
			t.Errorf("%s: %#v", name, err)
		}
		if strings.Contains(fmt.Sprint(err), "\n") {
			t.Errorf("%s: more than a line: %q", name, err)
		}
	}
}

func propertiesStay(t *testing.T, f *fixture) {
	before := f.store.Properties()
	if before.Name == "" {
		t.Error("no name")
	}
	f.put(t, "k", "")
	_, _ = f.store.Put(t.Context(), "k", nil, store.PutOptions{IfAbsent: true})
	_, _ = f.store.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "x"})
	if after := f.store.Properties(); after != before || f.other.Properties() != before {
		t.Errorf("%+v, then %+v; the other handle %+v", before, after, f.other.Properties())
	}
}

// everythingAtOnce is for the race detector. Each goroutine has a key of its own, whose
// body it knows, and all have a shared one.
func everythingAtOnce(t *testing.T, f *fixture) {
	n, rounds := 64, f.rounds(8)
	together(n, func(i int) {
		s, key := f.store, flag(i)
		if i%2 == 1 {
			s = f.other
		}
		for round := range rounds {
			ctx, body := t.Context(), sealed(i*rounds+round, 200)
			if _, err := s.Put(ctx, key, []byte(body), store.PutOptions{}); err != nil {
				t.Errorf("put: %v", err)
			}
			if _, err := s.Put(ctx, "index/lock.exclusive", []byte(body), store.PutOptions{}); err != nil {
				t.Errorf("put: %v", err)
			}
			if got, _, err := s.Get(ctx, key, limit); err != nil || string(got) != body {
				t.Errorf("own object: %d bytes, %v", len(got), err)
			}
			if got, _, err := s.Get(ctx, "index/lock.exclusive", limit); err == nil && !unbroken(string(got)) {
				t.Errorf("shared object is torn")
			} else if err != nil && !errors.Is(err, store.ErrNotFound) {
				t.Errorf("get: %v", err)
			}
			if found, err := lists(ctx, s, key, key); err != nil || !found {
				t.Errorf("own object: listed %t, %v", found, err)
			}
			if err := s.Delete(ctx, "index/lock.exclusive"); err != nil {
				t.Errorf("delete: %v", err)
			}
			if err := s.Delete(ctx, key); err != nil {
				t.Errorf("delete: %v", err)
			}
		}
	})
	if left := keys(list(t, f.store, "")); len(left) != 0 {
		t.Errorf("left: %q", left)
	}
}
