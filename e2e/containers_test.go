//go:build linux && programs && !minio

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// containers are images of the packages, with names of their own, and a repository that is
// mounted into their containers.
type containers struct {
	image, base, both string
	repo              string
}

func newContainers(t *testing.T, clone string) *containers {
	t.Helper()
	name := fmt.Sprintf("repolock-test-%d", os.Getpid())
	c := &containers{name, name + "-base", name + "-restic", t.TempDir()}
	t.Cleanup(func() {
		in(t, clone, "docker image rm -f $(docker image ls -q "+c.image+") "+c.base+" "+c.both+" >/dev/null 2>&1 || true")
	})
	in(t, clone, "sh packaging/image.sh", "IMAGE="+c.image)
	// The image's user reads and writes there.
	in(t, c.repo, "chmod 755 . .. && mkdir restic source && echo data >source/file && chown -R 65532 .")
	return c
}

// with returns a document's command with these images and this repository.
func (c *containers) with(command string) string {
	return strings.NewReplacer(" -t repolock-restic ", " -t "+c.both+" --build-arg REPOLOCK="+c.image+" --build-arg RESTIC="+c.base+" ",
		" repolock ", " "+c.image+" ", "/srv/repository", c.repo).Replace(command)
}

// restic runs restic in a container, which backs up and prunes under repolock, confined as in
// packaging/kubernetes/cronjob.yaml. Restic's own image can't be had here: this machine's
// restic, with its libraries, stands in for it.
func (c *containers) restic(t *testing.T, build string) {
	context := t.TempDir()
	in(t, context, `mkdir -p usr/bin && cp "$(command -v restic)" usr/bin/
ldd usr/bin/restic | grep -o '/[^ ]*' | while read -r lib; do mkdir -p ".${lib%/*}"; cp -L "$lib" ".$lib"; done
tar -c . | docker import - `+c.base)
	in(t, "..", "DOCKER_BUILDKIT=0 "+build)

	run := func(flags string, args ...string) string {
		return "docker run --rm --read-only --cap-drop ALL --security-opt no-new-privileges --tmpfs /tmp --tmpfs /cache:mode=1777 -v " + c.repo +
			":/repository -e REPOLOCK_REPO=/repository -e RESTIC_REPOSITORY=/repository/restic -e RESTIC_PASSWORD=x -e RESTIC_CACHE_DIR=/cache " +
			flags + " " + c.both + " " + strings.Join(args, " ")
	}
	in(t, context, run("", "run --exclusive --operation init -- restic init"))
	in(t, context, run("", "backup -- restic backup /repository/source"))
	if out := in(t, context, run("", "prune -- restic forget --prune --keep-last 1")); !strings.Contains(out, "keep 1 snapshots") {
		t.Error(out)
	}

	// A command without an end, which is stopped: as process 1, repolock passes the signal on.
	name := c.image + "-stopped"
	stdin, never, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer stdin.Close()
	defer never.Close()
	cmd := exec.Command("sh", "-c", run("-i --name "+name, "backup -- restic backup --stdin"))
	cmd.Stdin = stdin
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	locked := func(below string) bool {
		files, _ := filepath.Glob(filepath.Join(c.repo, below))
		return len(files) > 0
	}
	for end := time.Now().Add(time.Minute); !locked("restic/locks/*"); time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("restic doesn't run: %s", said.String())
		}
	}
	if !locked("index/lock.shared/*") {
		t.Error("it runs without a lock")
	}
	in(t, context, "if "+run("", "prune -E 3 -- restic prune")+"; then exit 1; else test $? = 3; fi")
	in(t, context, "docker stop -t 60 "+name)
	_ = cmd.Wait()
	// The exit code is restic's own, or before 0.17 the signal's. If killed, it would be 137.
	if code := cmd.ProcessState.ExitCode(); code != 130 && code != 143 {
		t.Errorf("exit code %d: %s", code, said.String())
	}
	if locked("index/lock.shared/*") {
		t.Error("the lock wasn't released")
	}
}
