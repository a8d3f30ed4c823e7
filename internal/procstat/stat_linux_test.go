package procstat

import (
	"os"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"
)

func TestParse(t *testing.T) {
	const rest = " 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 1 0 99 100"
	for _, c := range []struct {
		name, line string
		want       Stat
		ok         bool
	}{
		{"running", "5 (sh) S" + rest, Stat{State: "S", Parent: 1, Group: 7, Forked: true, Start: 99}, true},
		{"name with a parenthesis", "5 (a) Z 2 (b) S" + rest, Stat{State: "S", Parent: 1, Group: 7, Forked: true, Start: 99}, true},
		{"executed", "5 (sh) S 1 7 7 0 -1 4194304 1 2 3 4 5 6 7 8 20 0 1 0 99 100", Stat{State: "S", Parent: 1, Group: 7, Start: 99}, true},
		{"zombie", "5 (sh) Z" + rest, Stat{State: "Z", Parent: 1, Group: 7, Forked: true, Start: 99, Ended: true}, true},
		{"first thread ended", "5 (sh) Z 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 2 0 99 100", Stat{State: "Z", Parent: 1, Group: 7, Forked: true, Start: 99}, true},
		{"too short", "5 (sh) S 1 7 7 0 -1 4194368 1 2 3 4 5 6 7 8 20 0 1 0", Stat{}, false},
		{"empty", "", Stat{}, false},
	} {
		if got, ok := parse(c.line); ok != c.ok || cmp.Diff(c.want, got) != "" {
			t.Errorf("%s: %t %s", c.name, ok, cmp.Diff(c.want, got))
		}
	}
}

func TestReadSelf(t *testing.T) {
	s, ok := Read(strconv.Itoa(os.Getpid()))
	if !ok || s.Parent != os.Getppid() || s.Group != unix.Getpgrp() || s.Start == 0 || s.Ended {
		t.Errorf("%t %+v", ok, s)
	}
	if s, ok := Read("0"); ok {
		t.Errorf("process 0: %+v", s)
	}
}
