package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestFullRepository: the command that makes room needs a lock itself, so the hint must name
// another way.
func TestFullRepository(t *testing.T) {
	_, code, hint := describe(fmt.Errorf("put: %w", store.ErrFull))
	if code != exitFailed || !strings.Contains(hint, "outside of the repository") || !strings.Contains(hint, "prune") {
		t.Errorf("exit code %d, hint %q", code, hint)
	}
}
