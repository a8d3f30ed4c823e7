package store_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

func TestCheckKey(t *testing.T) {
	for key, good := range map[string]bool{
		"index/lock.exclusive":     true,
		"a":                        true,
		"...":                      true,
		"a..b/.c":                  true,
		"a:b c%2f":                 true,
		"ü/日本":                     true,
		strings.Repeat("x", 1024):  true,
		strings.Repeat("x", 1025):  false,
		strings.Repeat("ü", 513):   false,
		"":                         false,
		"/":                        false,
		"/a":                       false,
		"a/":                       false,
		"a//b":                     false,
		".":                        false,
		"..":                       false,
		"a/../b":                   false,
		"a/.":                      false,
		`a\b`:                      false,
		"a\x00":                    false,
		"\xff":                     false,
		"a/\xed\xa0\x80 surrogate": false,
	} {
		if err := store.CheckKey(key); (err == nil) != good || err != nil && !errors.Is(err, store.ErrInvalidKey) {
			t.Errorf("%.20q: %v", key, err)
		}
	}
}

// FuzzCheckKey compares CheckKey with io/fs, whose rule for a path that stays inside is a
// little less strict.
func FuzzCheckKey(f *testing.F) {
	for _, seed := range []string{"", "a", "a/b", "/a", "a/", "a//b", ".", "..", "a/../b", `a\b`, "a\x00b", "\xff", "...", "a/..b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, key string) {
		want := fs.ValidPath(key) && key != "." && len(key) <= 1024 && !strings.ContainsAny(key, "\x00\\")
		err := store.CheckKey(key)
		if (err == nil) != want || err != nil && !errors.Is(err, store.ErrInvalidKey) {
			t.Fatalf("%q: %v", key, err)
		}
	})
}

func TestErrors(t *testing.T) {
	err := error(&store.Error{Op: "put", Key: "index/lock.exclusive", Err: store.ErrPrecondition})
	if got := err.Error(); got != `put "index/lock.exclusive": precondition failed` {
		t.Error(got)
	}
	if !errors.Is(err, store.ErrPrecondition) || !store.Permanent(err) {
		t.Errorf("%v is permanent", err)
	}
	if store.Permanent(&store.Error{Op: "get", Key: "k", Err: errors.New("connection reset")}) || store.Permanent(nil) {
		t.Error("nothing is known of it, so it may pass")
	}
	for c, want := range map[store.Condition]string{store.Kept: "kept", store.Claimed: "claimed", store.Unsupported: "unsupported", 9: "unsupported"} {
		if c.String() != want {
			t.Errorf("%d is %q", int(c), c.String())
		}
	}
}
