//go:build unix

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestTakenName: a lock is acquired, checked, renewed and released although another user has
// taken the name of the directory for sockets. Nothing of ours is left there.
func TestTakenName(t *testing.T) {
	d := newDesk(t)
	t.Setenv("TMPDIR", d.run)
	taken := filepath.Join(d.run, fmt.Sprintf("repolock-%d", os.Geteuid()))
	write(t, taken, "another's")
	tmp := d.run
	d.run = "" // XDG_RUNTIME_DIR
	for _, end := range []string{"release", "kill"} {
		h := d.acquire("--exclusive")
		if !strings.Contains(h.Token, ".") {
			t.Errorf("%s doesn't name its place", h.Token)
		}
		d.want(0, "is held until", "check", h.Token)
		d.want(0, "is held until", "renew", h.Token)
		if end == "release" {
			d.want(0, "", "release", h.Token)
		} else {
			keeper, err := os.FindProcess(h.KeeperPID)
			if err == nil {
				err = keeper.Kill()
			}
			if err != nil {
				t.Fatal(err)
			}
			until(t, "the socket is removed", func() bool {
				code, _, _ := d.repolock("check", h.Token)
				return code == exitLost && len(tree(t, tmp)) == 1
			})
		}
		d.want(exitLost, "no keeper any more", "check", h.Token)
		left, err := os.ReadDir(tmp)
		if err != nil || len(left) != 1 || left[0].Name() != filepath.Base(taken) {
			t.Errorf("%s: left: %v %v", end, left, err)
		}
	}
}
