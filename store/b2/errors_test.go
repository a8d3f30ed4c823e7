package b2

import (
	"context"
	"errors"
	"testing"
)

// TestReason: after a context has ended, its end is the reason, whatever error blazer returns.
func TestReason(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	n := &note{err: errors.New("operation was canceled")}
	if err := n.reason(ctx, errors.New("x")); !errors.Is(err, n.err) {
		t.Error(err)
	}
	cancel()
	for _, n := range []*note{n, {}} {
		if err := n.reason(ctx, errors.New("x")); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}
