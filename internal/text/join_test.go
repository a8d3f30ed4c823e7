package text

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"testing"
)

// TestJoin: several errors are one line, and are each of them.
func TestJoin(t *testing.T) {
	if err := Join(nil, nil); err != nil {
		t.Errorf("of none: %v", err)
	}
	if err := Join(nil, io.EOF, nil); err != io.EOF {
		t.Errorf("of one: %v", err)
	}
	err := Join(fmt.Errorf("first: %w", io.EOF), nil, fs.ErrNotExist)
	if err.Error() != "first: EOF; file does not exist" || !errors.Is(err, io.EOF) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("of two: %q", err)
	}
}
