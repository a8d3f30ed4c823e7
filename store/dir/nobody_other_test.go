//go:build unix && !linux

package dir_test

import (
	"os"
	"testing"
)

// asNobody runs a test's part without the privileges of root. Only on Linux can a thread drop them.
func asNobody(t *testing.T, _ string, do func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root may do anything: run this test as another user")
	}
	do()
}
