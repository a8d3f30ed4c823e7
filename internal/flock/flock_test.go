package flock_test

import (
	"errors"
	"os"
	"testing"

	"github.com/repolock/repolock/internal/flock"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestTry: one open file of a directory has the flock, until it is unlocked or closed. Any number
// have it shared, and then none has it alone.
func TestTry(t *testing.T) {
	dir := t.TempDir()
	open := func() *os.File {
		f, err := os.Open(dir)
		assert.OK(t, err)
		t.Cleanup(func() { f.Close() })
		return f
	}
	a, b := open(), open()
	if !flock.Supported {
		assert.Is(t, assert.Err(flock.Try(a)), errors.ErrUnsupported)
		return
	}
	try := func(how func(*os.File) (bool, error), f *os.File, want bool) {
		t.Helper()
		ok, err := how(f)
		assert.That(t, ok == want && err == nil, "%v, %v, want %v", ok, err, want)
	}
	try(flock.Try, a, true)
	try(flock.Try, b, false)
	flock.Unlock(a)
	try(flock.Try, b, true)
	try(flock.Try, a, false)
	b.Close()
	try(flock.Try, a, true)
	c, d := open(), open()
	flock.Unlock(a)
	try(flock.TryShared, c, true)
	try(flock.TryShared, d, true)
	try(flock.Try, a, false)
	flock.Close(c)
	flock.Close(d)
	try(flock.Try, a, true)
	try(flock.TryShared, open(), false)
	a.Close()
	ok, err := flock.Try(a)
	assert.That(t, !ok && err != nil, "a closed file: %v, %v", ok, err)
}
