package dir_test

import (
	"errors"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/dir"
)

// TestDeleteIfMatch: DeleteIfMatch deletes the named version, and no other.
func TestDeleteIfMatch(t *testing.T) {
	s, err := dir.Open(t.Context(), t.TempDir(), dir.Options{})
	if err != nil {
		t.Fatal(err)
	}
	const key = "index/lock.exclusive"
	old, err := s.Put(t.Context(), key, []byte("1"), store.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	now, err := s.Put(t.Context(), key, []byte("2"), store.PutOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if s.Properties().IfMatch == store.Unsupported {
		if err := s.DeleteIfMatch(t.Context(), key, now.ETag); !errors.Is(err, store.ErrConditionUnsupported) {
			t.Error(err)
		}
		return
	}
	if err := s.DeleteIfMatch(t.Context(), key, old.ETag); !errors.Is(err, store.ErrPrecondition) {
		t.Errorf("of another version: %v", err)
	}
	if _, _, err := s.Get(t.Context(), key, 10); err != nil {
		t.Errorf("it is gone: %v", err)
	}
	if err := s.DeleteIfMatch(t.Context(), key, now.ETag); err != nil {
		t.Errorf("of this version: %v", err)
	}
	if _, _, err := s.Get(t.Context(), key, 10); !errors.Is(err, store.ErrNotFound) {
		t.Errorf("it is still there: %v", err)
	}
}
