//go:build unix

package e2e

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestComposeRelease: docker-compose.yml works in a fresh clone, because it needs neither a built server nor a variable.
// Its image is of the release that e2e/minio/go.mod pins, and is pinned by its digest.
func TestComposeRelease(t *testing.T) {
	file := read(t, "../docker-compose.yml")
	image := regexp.MustCompile(`image: minio/minio:RELEASE\.(\d{4})-(\d\d)-(\d\d)T(\d\d)-(\d\d)-(\d\d)Z@sha256:[0-9a-f]{64}\n`).FindStringSubmatch(file)
	assert.Need(t, image != nil && !strings.Contains(file, "build:"), "%s", file)
	assert.That(t, strings.Contains(read(t, "minio/go.mod"), "github.com/minio/minio v0.0.0-"+strings.Join(image[1:], "")+"-"), "e2e/minio/go.mod has another release than %s", image[0])
	for _, variable := range regexp.MustCompile(`\$\{[^}]*\}`).FindAllString(file, -1) {
		assert.That(t, strings.Contains(variable, ":-"), "%s has no default", variable)
	}
}

// fakes are programs that minio.sh calls: go, which builds a server and a probe, and docker, whose Compose fails at up.
var fakes = map[string]string{
	"go": `case $1 in
version) echo go version fake ;;
env) echo linux ;;
build)
	while [ "$1" != -o ]; do shift; done
	printf '#!/bin/sh\ncase $1 in free) [ ! -e "$FAKE/up" ] ;; ready) [ -e "$FAKE/up" ] ;; esac\n' >"$2/probe"
	printf '#!/bin/sh\n: "$@"\ntouch "$FAKE/up"\nwhile [ -e "$FAKE/up" ]; do sleep 0.1; done\n' >"$2/minio"
	chmod +x "$2/probe" "$2/minio" ;;
esac`,
	"docker": `echo "$*" >>"$FAKE/asked"
case " $* " in
*" image "*) exit 1 ;;
*" up "*) echo "UnixHTTPConnectionPool: Read timed out" >&2; exit 1 ;;
esac`,
}

// TestComposeTimesOut: if Compose can't start the container, minio.sh runs the server as a process, says why, and at the
// end takes down both.
func TestComposeTimesOut(t *testing.T) {
	dir := t.TempDir()
	for name, text := range fakes {
		assert.OK(t, os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+text+"\n"), 0o755))
	}
	cmd := exec.Command("sh", "minio.sh", "with", "sh", "-c", `echo "at $REPOLOCK_E2E_MINIO"; sh minio.sh stop; rm -f "$FAKE/up"`)
	cmd.Env = append(os.Environ(), "FAKE="+dir, "PATH="+dir+":"+os.Getenv("PATH"), "REPOLOCK_E2E_CACHE="+filepath.Join(dir, "cache"), "REPOLOCK_E2E_DOCKER=", "REPOLOCK_E2E_RELEASE=", "REPOLOCK_E2E_PORT=")
	out, err := cmd.CombinedOutput()
	said := string(out)
	assert.That(t, err == nil && strings.Contains(said, "at http://127.0.0.1:19000\n"), "%v: %s", err, said)
	assert.That(t, strings.Contains(said, "Docker Compose can't start it, so it runs as a process: UnixHTTPConnectionPool: Read timed out"), "%s", said)
	asked := read(t, filepath.Join(dir, "asked"))
	assert.That(t, strings.Contains(asked, " up -d") && strings.Count(asked, " down ") == 2, "%s", asked)
	left, err := filepath.Glob(filepath.Join(dir, "cache", "run-*"))
	assert.That(t, err == nil && len(left) == 0, "left: %v, %v", left, err)
}
