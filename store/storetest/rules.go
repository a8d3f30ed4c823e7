package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
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
		assert.OK(t, err)
		if !unbroken(string(body)) || obj.Size != int64(len(body)) {
			t.Fatalf("read %d bytes that no writer wrote, said to be %d", len(body), obj.Size)
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
		assert.Is(t, err, store.ErrInvalidKey, "put %q", key)
		_, _, err = f.store.Get(t.Context(), key, limit)
		assert.Is(t, err, store.ErrInvalidKey, "get %q", key)
		assert.Is(t, f.store.Delete(t.Context(), key), store.ErrInvalidKey, "delete %q", key)
	}
	assert.Equal(t, keys(list(t, f.store, "")), []string{"a/b"})
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
		f.holds(t, key, key)
		assert.Equal(t, keys(list(t, f.store, key)), []string{key}, "listed")
		f.delete(t, key)
	}
	assert.Equal(t, keys(list(t, f.store, "")), nil, "left")
}

// endedContext sends requests whose context has ended. Their errors name the operation and the key.
func endedContext(t *testing.T, f *fixture) {
	f.put(t, "a key", "body")
	late, cancel := context.WithDeadline(t.Context(), time.Unix(0, 0))
	defer cancel()
	for want, ctx := range map[error]context.Context{context.Canceled: ended(), context.DeadlineExceeded: late} {
		for name, err := range f.requests(ctx, "a key") {
			var e *store.Error
			assert.Is(t, err, want, name)
			assert.That(t, !store.Permanent(err), "%s: %v is permanent", name, err)
			assert.That(t, errors.As(err, &e) && e.Op == name && e.Key == "a key", "%s: %#v", name, err)
			assert.That(t, !strings.Contains(fmt.Sprint(err), "\n"), "%s: more than a line: %q", name, err)
		}
	}
	f.holds(t, "a key", "body")
}

func (f *fixture) requests(ctx context.Context, key string) map[string]error {
	_, put := f.store.Put(ctx, key, []byte("new"), store.PutOptions{})
	_, _, get := f.store.Get(ctx, key, limit)
	_, list := f.store.List(ctx, key, "")
	return map[string]error{"put": put, "get": get, "list": list, "delete": f.store.Delete(ctx, key)}
}

func propertiesStay(t *testing.T, f *fixture) {
	before := f.store.Properties()
	assert.That(t, before.Name != "", "no name")
	f.put(t, "k", "")
	_, _ = f.store.Put(t.Context(), "k", nil, store.PutOptions{IfAbsent: true})
	_, _ = f.store.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "x"})
	for _, s := range []store.Store{f.store, f.other} {
		assert.Equal(t, s.Properties(), before)
	}
}

// everythingAtOnce is for the race detector. Each goroutine has a key of its own, whose
// body it knows, and all have a shared one.
func everythingAtOnce(t *testing.T, f *fixture) {
	rounds := f.rounds(8)
	f.together(64, func(i int, s, _ store.Store) {
		for round := range rounds {
			ctx, key, body := t.Context(), flag(i), sealed(i*rounds+round, 200)
			assert.Is(t, assert.Err(s.Put(ctx, key, []byte(body), store.PutOptions{})), nil, "put")
			assert.Is(t, assert.Err(s.Put(ctx, "index/lock.exclusive", []byte(body), store.PutOptions{})), nil, "put")
			got, _, err := s.Get(ctx, key, limit)
			assert.That(t, err == nil && string(got) == body, "own object: %d bytes, %v", len(got), err)
			got, _, err = s.Get(ctx, "index/lock.exclusive", limit)
			assert.That(t, err == nil && unbroken(string(got)) || errors.Is(err, store.ErrNotFound),
				"shared object: %d bytes, %v", len(got), err)
			listed, err := store.Keys(ctx, s, key)
			assert.That(t, err == nil && slices.Contains(listed, key), "own object: listed %q, %v", listed, err)
			assert.Is(t, s.Delete(ctx, "index/lock.exclusive"), nil, "delete")
			assert.Is(t, s.Delete(ctx, key), nil, "delete")
		}
	})
	assert.Equal(t, keys(list(t, f.store, "")), nil, "left")
}
