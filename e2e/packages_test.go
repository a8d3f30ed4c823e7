//go:build linux && programs

package e2e

import (
	"bytes"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/docblocks"
)

// packages builds what make packages does for one system, twice, once, of the last
// commit. It returns the clone with the first dist/.
var packages = sync.OnceValues(func() (string, error) {
	clone := filepath.Join(bin, "packages")
	cmd := exec.Command("sh", "../packaging/twice.sh", clone)
	cmd.Env = append(os.Environ(), "PACKAGES_ONLY=linux_amd64")
	out, err := cmd.CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w\n%s", err, out)
	}
	if lines := bytes.Count(out, []byte("\n")); lines != 7 {
		return "", fmt.Errorf("7 sums were to be compared, and not:\n%s", out)
	}
	return clone, nil
})

func clone(t *testing.T) string {
	t.Helper()
	dir, err := packages()
	assert.OK(t, err)
	return dir
}

// built is goreleaser's list of the files that it has built.
func built(t *testing.T) (b struct{ Version, Commit string }) {
	t.Helper()
	raw := read(t, filepath.Join(clone(t), "dist/metadata.json"))
	assert.OK(t, json.Unmarshal([]byte(raw), &b))
	return b
}

// blocks returns the commands in the sh blocks of a document.
func blocks(t *testing.T, file string) (all []string) {
	t.Helper()
	page, err := docblocks.Read(file)
	assert.OK(t, err)
	for _, block := range page.Fenced["sh"] {
		all = append(all, strings.TrimSuffix(block, "\n"))
	}
	return all
}

// isVersion checks that the output of repolock version has the version of the packages.
func isVersion(t *testing.T, printed string) {
	t.Helper()
	b := built(t)
	if !strings.Contains(printed, "repolock v"+b.Version+",") || !strings.Contains(printed, "commit "+b.Commit[:8]+" of 20") ||
		strings.Contains(printed, "modified") {
		t.Errorf("built of %s, %s, it prints %s", b.Version, b.Commit, printed)
	}
}

// TestPackagesDocument: the commands of docs/packages.md and packaging/README.md do what these pages promise.
func TestPackagesDocument(t *testing.T) {
	out, err := exec.Command("dpkg-query", "-W", "repolock").Output()
	assert.Need(t, err != nil, "%s is installed here, and these tests would remove it", out)
	commands := append(blocks(t, "../docs/packages.md"), blocks(t, "../packaging/README.md")...)
	const make, download, install, image, check, twice = 0, 1, 2, 3, 4, 5
	if len(commands) != 6 || !slices.Equal([]string{commands[make], commands[twice]}, []string{"make packages", "make packages-twice"}) {
		t.Fatalf("the documents' commands are %q", commands)
	}
	version, status, _ := strings.Cut(commands[image], "\n")
	deb, rest, _ := strings.Cut(commands[install], "\n")
	rpm, tar, _ := strings.Cut(rest, "\n")
	dir := clone(t) // make and twice: they are the scripts that this runs

	t.Run("changed", func(t *testing.T) {
		in(t, dir, "echo changed >>docs/restic.md; trap 'git checkout -q docs/restic.md' EXIT; if sh packaging/packages.sh; then exit 1; else test $? = 78; fi")
	})
	t.Run("check", func(t *testing.T) {
		in(t, dir, commands[check])
		changed := t.TempDir()
		in(t, dir, "cp dist/checksums.txt dist/repolock_* "+changed)
		in(t, changed, "echo x | tee -a repolock_*.deb; ! sha256sum --check checksums.txt")
	})
	t.Run("download", func(t *testing.T) {
		sums, _, _ := strings.Cut(commands[download], "\n") // the other lines need a release
		some := t.TempDir()
		in(t, dir, "cp dist/checksums.txt dist/*.deb "+some)
		in(t, some, sums)
		in(t, some, "echo x | tee -a repolock_*.deb; ! "+sums)
	})
	t.Run("notes", func(t *testing.T) {
		notes := in(t, dir, "sh packaging/notes.sh v0.1.0")
		assert.That(t, strings.HasPrefix(notes, "The first release.") && !strings.Contains(notes, "](docs/"), "%v", notes)
		in(t, dir, "if sh packaging/notes.sh v0.0.1; then exit 1; else test $? = 78; fi")
	})
	t.Run("bill of materials", func(t *testing.T) {
		linked, bill := in(t, dir, "go version -m dist/linux_amd64_linux_amd64_v1/repolock"), in(t, dir, "cat dist/*.cdx.json")
		modules := 0
		for line := range strings.Lines(linked) {
			if f := strings.Fields(line); f[0] == "dep" {
				modules++
				assert.That(t, strings.Contains(bill, `"pkg:golang/`+f[1]+"@"+f[2]+`"`), "it lacks %s %s", f[1], f[2])
			}
		}
		assert.That(t, modules >= 10 && strings.Contains(bill, `"pkg:golang/std@1.`), "%d modules, and the bill is %.500s", modules, bill)
	})
	t.Run("deb", func(t *testing.T) {
		t.Cleanup(func() {
			in(t, dir, "dpkg --purge repolock; ! test -e /usr/bin/repolock; ! test -e /usr/lib/systemd/system/repolock-backup@.service")
		})
		in(t, dir, deb)
		isVersion(t, in(t, dir, "/usr/bin/repolock version"))
		in(t, dir, "dpkg --verify repolock")
		day, page := in(t, dir, "TZ=UTC git log -1 --date=format-local:%F --format=%cd"), in(t, dir, "cat /usr/share/man/man1/repolock.1")
		assert.That(t, strings.Contains(page, strings.TrimSpace(day)), "the manual page isn't of %s: %.300s", day, page)
		got := in(t, dir, "stat -c '%a %U %G' /usr/bin/repolock /etc/repolock")
		assert.That(t, got == "755 root root\n700 root root\n", "%v", got)
		in(t, dir, "diff -r docs /usr/share/doc/repolock/docs; diff LICENSE /usr/share/doc/repolock/copyright; diff NOTICES /usr/share/doc/repolock/NOTICES; diff README.md /usr/share/doc/repolock/README.md")
	})
	t.Run("rpm", func(t *testing.T) {
		root := t.TempDir()
		// Debian's rpm doesn't know the installed packages, nor that root has no shell.
		in(t, dir, strings.Replace(rpm, "rpm -i ", "rpm -i --nodeps --noscripts --root "+root+" ", 1))
		isVersion(t, in(t, root, "usr/bin/repolock version"))
		listing := in(t, dir, "rpm -qpl dist/*.rpm")
		for _, file := range []string{"/usr/lib/systemd/system/repolock-prune@.timer", "/usr/share/doc/repolock/docs/kubernetes.md", "/usr/share/doc/repolock/prometheus/repolock.rules.yml", "/usr/share/doc/repolock/example.env", "/usr/share/doc/repolock/NOTICES",
			"/usr/share/man/man1/repolock.1", "/usr/share/bash-completion/completions/repolock", "/usr/share/zsh/site-functions/_repolock", "/usr/share/fish/vendor_completions.d/repolock.fish"} {
			assert.That(t, strings.Contains(listing, file+"\n"), "no %s in\n%s", file, listing)
		}
		host, err := os.Hostname()
		assert.That(t, err == nil && !strings.Contains(in(t, dir, "rpm -qp --qf '%{BUILDHOST}' dist/*.rpm"), host), "it names the machine that has built it")
	})
	t.Run("tar", func(t *testing.T) {
		at := t.TempDir()
		in(t, dir, strings.Replace(tar, "/usr/local/bin", at, 1))
		isVersion(t, in(t, at, "./repolock version"))
		in(t, dir, "tar -xzf dist/*.tar.gz -C "+at+"; diff -r docs "+at+"/repolock_*/docs; diff NOTICES "+at+"/repolock_*/NOTICES")
		listing := in(t, dir, "tar -tzf dist/*.tar.gz")
		for _, file := range []string{"LICENSE", "NOTICES", "README.md", "CHANGELOG.md", "systemd/repolock-backup@.service", "kubernetes/cronjob.yaml"} {
			assert.That(t, strings.Contains(listing, "_linux_amd64/"+file+"\n"), "no %s in\n%s", file, listing)
		}
	})
	t.Run("image", func(t *testing.T) {
		c := newContainers(t, dir)
		isVersion(t, in(t, dir, c.with(version)))
		out := in(t, dir, c.with(status))
		assert.That(t, strings.Contains(out, "no locks"), "%v", out)
		kubernetes := blocks(t, "../docs/kubernetes.md")
		restic := slices.IndexFunc(kubernetes, func(block string) bool { return strings.HasPrefix(block, "docker build ") })
		assert.Need(t, restic >= 0, "docs/kubernetes.md builds no image")
		c.restic(t, c.with(kubernetes[restic]))
		user := in(t, dir, "docker inspect -f '{{.Config.User}}' "+c.image+" "+c.both)
		assert.That(t, user == "65532:65532\n65532:65532\n", "it runs as %s", user)
		in(t, dir, "box=$(docker create "+c.image+"); trap 'docker rm $box >/dev/null' EXIT; for f in LICENSE NOTICES; do docker cp $box:/usr/share/doc/repolock/$f - | tar -xO | diff $f -; done")
		pem := in(t, dir, "box=$(docker create "+c.image+"); trap 'docker rm $box >/dev/null' EXIT; docker cp $box:/etc/ssl/certs/ca-certificates.crt - | tar -xO")
		pool := x509.NewCertPool()
		assert.That(t, pool.AppendCertsFromPEM([]byte(pem)) && strings.Count(pem, "BEGIN CERTIFICATE") >= 100, "no certificates: %.100s", pem)
	})
}

// containers are images of the packages under other names, and a repository that is mounted into their
// containers.
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

// restic runs restic in a container, confined as in packaging/kubernetes/cronjob.yaml, to back up and prune
// under repolock. It uses this machine's restic with its libraries in place of restic's image.
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
	out := in(t, context, run("", "prune -- restic forget --prune --keep-last 1"))
	assert.That(t, strings.Contains(out, "keep 1 snapshots"), "%v", out)

	// A command without an end, which is stopped: as process 1, repolock passes the signal on.
	name := c.image + "-stopped"
	stdin, never, err := os.Pipe()
	assert.OK(t, err)
	defer stdin.Close()
	defer never.Close()
	cmd := exec.Command("sh", "-c", run("-i --name "+name, "backup -- restic backup --stdin"))
	cmd.Stdin = stdin
	var said strings.Builder
	cmd.Stdout, cmd.Stderr = &said, &said
	assert.OK(t, cmd.Start())
	locked := func(below string) bool {
		files, _ := filepath.Glob(filepath.Join(c.repo, below))
		return len(files) > 0
	}
	waitFor(t, "restic to run", nil, func() bool { return locked("restic/locks/*") })
	assert.That(t, locked("index/lock.shared/*"), "it runs without a lock")
	in(t, context, "if "+run("", "prune -E 3 -- restic prune")+"; then exit 1; else test $? = 3; fi")
	in(t, context, "docker stop -t 60 "+name)
	_ = cmd.Wait()
	// The exit code is restic's own, or before 0.17 the signal's. If killed, it would be 137.
	code := cmd.ProcessState.ExitCode()
	assert.That(t, code == 130 || code == 143, "exit code %d: %s", code, said.String())
	assert.That(t, !locked("index/lock.shared/*"), "the lock wasn't released")
}
