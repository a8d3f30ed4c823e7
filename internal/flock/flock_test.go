package flock_test

import (
	"errors"
	"os"
	"testing"

	"github.com/repolock/repolock/internal/flock"
)

// TestTry: one open file of a directory has the flock, until it is unlocked or closed. Any number
// have it shared, and then none has it alone.
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
	c, d := open(), open()
	flock.Unlock(a)
	for _, f := range []*os.File{c, d} {
		if ok, err := flock.TryShared(f); !ok || err != nil {
			t.Errorf("shared: %v, %v", ok, err)
		}
	}
	try(a, false)
	flock.Close(c)
	flock.Close(d)
	try(a, true)
	if ok, err := flock.TryShared(open()); ok || err != nil {
		t.Errorf("shared beside one that isn't: %v, %v", ok, err)
	}
	a.Close()
	if ok, err := flock.Try(a); ok || err == nil {
		t.Errorf("a closed file: %v, %v", ok, err)
	}
}
