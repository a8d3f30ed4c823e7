//go:build unix && !minio && !programs

package e2e

import (
	"os"
	"strings"
	"testing"
)

// These tests run the pages about locks of other systems that need no server.

func TestAlsoPage(t *testing.T) {
	p := alone(t, "also.md")
	p.program("restic", `echo "restic $* $REPOLOCK_MODE of $(echo $REPOLOCK_OUTER | wc -w) locks"`)
	blocks := p.Fenced["sh"]
	p.with("repo").each(blocks[:1], `restic prune exclusive of +3 locks\n`)
	p.each(blocks[1:],
		`^$`,
		`nightly is held by .*refused with 75\n.*skipped: .*nightly is held by `,
		`^$`,
		`^$`,
		`looked at tower-fleet:.*looked at beads:.*fit for locks.*nothing to break`,
		`OUTCOME\n.*success\n$`,
	)
	out := p.sh("cat log metrics")
	p.contains(out, `"lock_name":"nightly","lock_path":"`, `{"event":"lock_released","request_id":"req_`, `repolock_held{lock="nightly",`)
	if strings.Contains(out, p.path("repo")) {
		t.Error("the repository isn't that of the commands")
	}
}

func TestRepositoryLockPage(t *testing.T) {
	p := alone(t, "locks-repository.md")
	p.each(p.Fenced["sh"], `no locks.*this store is fit to hold locks.*nothing to break`, `lock nightly of repository .* is held by .*refused with 75\n$`)
}

func TestBeadsPage(t *testing.T) {
	p := alone(t, "locks-beads.md")
	out := p.sh(p.Script()) // the first block changes the directory for all
	p.contains(out, `"holder": "repolock"`, "unreadable", "deleted beads:", "exclusive lock of my-tool on ")
	if n := strings.Count(out, "deleted beads:"); n != 2 {
		t.Errorf("%d locks were broken:\n%s", n, out)
	}
	if p.exists("project/.beads/.exclusive-lock") {
		t.Error("a lock is left")
	}
}

func TestTowerFleetPage(t *testing.T) {
	p := alone(t, "locks-tower-fleet.md")
	const dir = "/var/lib/tower-fleet"
	for i, block := range p.Fenced["sh"] {
		if !strings.Contains(block, dir) {
			t.Errorf("%s isn't in %s", dir, block)
		}
		p.Fenced["sh"][i] = strings.ReplaceAll(block, dir, p.path("tower-fleet"))
	}
	if err := os.Mkdir(p.path("tower-fleet"), 0o700); err != nil {
		t.Fatal(err)
	}
	p.each(p.Fenced["sh"], `no locks\n.*looked at tower-fleet:`, `nothing to break`)
	if out := p.sh("stat -c %a tower-fleet/locks; ls -A tower-fleet/locks"); out != "700\n" {
		t.Errorf("the directory is %s", out)
	}
}
