//go:build unix

package audit

import (
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestTorn: after a record that a full disk has cut off, the next record that fits begins on a new line.
func TestTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "log")
	l, err := Open(path)
	assert.OK(t, err)
	signal.Ignore(unix.SIGXFSZ)
	t.Cleanup(func() { signal.Reset(unix.SIGXFSZ) })
	var was unix.Rlimit
	assert.OK(t, unix.Getrlimit(unix.RLIMIT_FSIZE, &was))
	append := func(full bool, id string) error {
		limit := was
		if full {
			limit.Cur = 50 // bytes of a file
		}
		assert.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &limit))
		defer func() { assert.OK(t, unix.Setrlimit(unix.RLIMIT_FSIZE, &was)) }()
		return l.Append(at(0, Acquired, id, Record{}))
	}
	assert.Is(t, append(true, "cut"), syscall.EFBIG)
	assert.Is(t, append(true, "lost"), syscall.EFBIG)
	assert.OK(t, append(false, "next"))
	assert.OK(t, append(false, "last"))
	text, err := os.ReadFile(path)
	assert.OK(t, err)
	records, skipped, err := Read(strings.NewReader(string(text)))
	assert.Need(t, err == nil && len(records) == 2 && skipped == 1, "%d records, %d skipped, %v: %s", len(records), skipped, err, text)
	assert.That(t, records[0].RequestID == "next" && records[1].RequestID == "last", "%s", text)
}
