package storetest

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/requests"
	"github.com/repolock/repolock/store"
)

// sealed returns a body of about size bytes, which begins with its checksum.
func sealed(seed, size int) string {
	body := strings.Repeat(fmt.Sprintf("%08d", seed), size/8)
	return fmt.Sprintf("%08x%s", crc32.ChecksumIEEE([]byte(body)), body)
}

// unbroken reports whether a body is complete, as sealed has made it.
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
			t.Fatalf("read %d bytes that no writer has put; the size is %d", len(body), obj.Size)
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

// goodKeys puts, lists and deletes keys of the lock, and keys that look invalid.
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
		for name, err := range requests.Each(ctx, f.store, "a key") {
			var e *store.Error
			assert.Is(t, err, want, name)
			assert.That(t, !store.Permanent(err), "%s: %v is permanent", name, err)
			assert.That(t, errors.As(err, &e) && e.Op == name && e.Key == "a key", "%s: %#v", name, err)
			assert.That(t, !strings.Contains(fmt.Sprint(err), "\n"), "%s: more than a line: %q", name, err)
		}
	}
	f.holds(t, "a key", "body")
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
