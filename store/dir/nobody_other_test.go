//go:build unix && !linux

package dir_test

import (
	"os"
	"testing"
)

// asNobody runs a part of a test. It skips the test for root, because only on Linux can a thread become
// another user.
func asNobody(t *testing.T, _ string, do func()) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Skip("root may do anything: run this test as another user")
	}
	do()
}
