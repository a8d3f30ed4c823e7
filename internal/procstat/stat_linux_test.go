package procstat

import (
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestParse: parse finds the fields although the name can contain anything. A missing field is zero.
func TestParse(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 1 0 99 100"
	for _, c := range []struct {
		name, line string
		want       Stat
	}{
		{"running", "5 (sh) S" + rest, Stat{State: "S", Parent: 1, Group: 7, Forked: true, Start: 99}},
		{"name with a parenthesis", "5 (a) Z 2 (b) S" + rest, Stat{State: "S", Parent: 1, Group: 7, Forked: true, Start: 99}},
		{"executed", "5 (sh) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 100", Stat{State: "S", Parent: 1, Group: 7, Start: 99}},
		{"zombie", "5 (sh) Z" + rest, Stat{State: "Z", Parent: 1, Group: 7, Forked: true, Start: 99, Ended: true}},
		{"first thread ended", "5 (sh) Z 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 2 0 99 100", Stat{State: "Z", Parent: 1, Group: 7, Forked: true, Start: 99}},
		{"no start", "5 (sh) Z 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 1 0", Stat{State: "Z", Parent: 1, Group: 7, Forked: true, Ended: true}},
		{"no number of threads", "5 (sh) Z 1 7 7 0 -1 4194368", Stat{State: "Z", Parent: 1, Group: 7, Forked: true}},
		{"empty", "", Stat{Forked: true}},
	} {
		assert.Equal(t, parse(c.line), c.want, c.name)
	}
}

func TestReadSelf(t *testing.T) {
	s, ok := Read(strconv.Itoa(os.Getpid()))
	assert.That(t, ok && s.Parent == os.Getppid() && s.Group == unix.Getpgrp() && s.Start != 0 && !s.Ended, "%t %+v", ok, s)
	s, ok = Read("0")
	assert.That(t, !ok, "process 0: %+v", s)
}

// TestDoubtIsNoEnd: Read reports false only of a process that certainly doesn't exist.
func TestDoubtIsNoEnd(t *testing.T) {
	dir := t.TempDir()
	assert.OK(t, os.Mkdir(filepath.Join(dir, "stat"), 0o700)) // can't be read as a file
	s, ok := Read(".." + dir)
	assert.That(t, ok && !s.Ended, "unreadable: %t %+v", ok, s)
	s, ok = Read(".." + filepath.Join(dir, "absent"))
	assert.That(t, !ok, "absent: %+v", s)
}
