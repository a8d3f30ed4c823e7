package flock_test

import (
	"errors"
	"os"
	"testing"

	"github.com/repolock/repolock/internal/flock"
)

// TestTry: one open file of a directory has the flock, until it is unlocked or closed.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if !flock.Supported {
		if ok, err := flock.Try(a); ok || !errors.Is(err, errors.ErrUnsupported) {
			t.Errorf("%v, %v", ok, err)
		}
		return
	}
	try := func(f *os.File, want bool) {
		t.Helper()
		if ok, err := flock.Try(f); ok != want || err != nil {
			t.Errorf("%v, %v, want %v", ok, err, want)
		}
	}
	try(a, true)
	try(b, false)
	flock.Unlock(a)
	try(b, true)
	try(a, false)
	b.Close()
	try(a, true)
	a.Close()
	if ok, err := flock.Try(a); ok || err == nil {
		t.Errorf("a closed file: %v, %v", ok, err)
	}
}
