package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

// TestNoPermissionWouldHelp: if the credentials are wrong, or a file system is mounted read-only, the message
// recommends no permission.
func TestNoPermissionWouldHelp(t *testing.T) {
	for err, says := range map[error]string{store.ErrCredentials: "credentials", store.ErrReadOnly: "mount it writable", store.ErrPermission: "locking needs to list"} {
		name, code, hint := describe(fmt.Errorf("listing the locks: %w", err))
		if name != "permission_denied" || code != exitPermission || !strings.Contains(hint, says) || err != store.ErrPermission && strings.Contains(hint, "locking needs") {
			t.Errorf("%v: %s, exit code %d, hint %q", err, name, code, hint)
		}
	}
}
