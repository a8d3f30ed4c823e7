package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestWrongCredentials: if the credentials are wrong, the message recommends no permission.
func TestWrongCredentials(t *testing.T) {
	for err, says := range map[error]string{store.ErrCredentials: "credentials", store.ErrPermission: "locking needs to list"} {
		_, code, hint := describe(fmt.Errorf("listing the locks: %w", err))
		if code != exitPermission || !strings.Contains(hint, says) || err == store.ErrCredentials && strings.Contains(hint, "locking needs") {
			t.Errorf("%v: exit code %d, hint %q", err, code, hint)
		}
	}
}
