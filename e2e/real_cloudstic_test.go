//go:build linux && minio && programs && cloudstic

package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/sshd"
)

// TestRealCloudstic runs docs/cloudstic.md, "cloudstic.md", with Cloudstic's own program. No package of Debian's has it, so
// make cloudstic builds it from a copy of its repository.
func TestRealCloudstic(t *testing.T) {
	built := filepath.Join(t.TempDir(), "cloudstic")
	in(t, os.Getenv("REPOLOCK_E2E_CLOUDSTIC"), "go build -o "+built+" ./cmd/cloudstic", "CGO_ENABLED=0")
	const env = `CLOUDSTIC_STORE="local:$HOME/backups"`
	on := func(name string, run func(p *page)) {
		t.Run(name, func(t *testing.T) {
			p := newPage(t, "cloudstic.md")
			p.program("cloudstic", "exec "+built+` "$@"`)
			p.at = "-- cloudstic"
			run(p)
		})
	}
	on("directory", func(p *page) {
		p.knownCommands()
		p.cloudstic(p.Script())
		p.contains(p.sh(`tar -tf "$HOME/copy.tar"`), "./index/snapshots\n")
		p.ownLock(`"$HOME/backups"`)
		p.killedCloudstic()
	})
	on("MinIO", func(p *page) {
		b := onS3.on(onS3.shared(t))
		for name, value := range credentials {
			p.env = append(p.env, name+"="+value)
		}
		p.env = append(p.env, "BUCKET="+b.bucket, "CLOUDSTIC_S3_ENDPOINT="+b.Endpoint())
		p.cloudstic(p.without(env, `CLOUDSTIC_STORE="s3:$BUCKET/cloudstic"`))
		p.ownLock(`"s3://$BUCKET/cloudstic?endpoint=$CLOUDSTIC_S3_ENDPOINT"`)
		assert.That(p.t, !p.exists("backups/config"), "it wasn't the bucket that was used")
	})
	on("SFTP", func(p *page) {
		server := sshd.Apart(p.t)
		p.write("known", fmt.Sprintf("[127.0.0.1]:%d %s", server.Port, read(p.t, server.File("host.pub"))))
		p.env = append(p.env, "CLOUDSTIC_STORE_SFTP_KEY="+server.File("user"), "CLOUDSTIC_STORE_SFTP_KNOWN_HOSTS="+p.path("known"), "PATH="+server.Bin()+":"+p.path("bin")+":"+bin+":/usr/bin:/bin")
		p.contains(p.sh(`export CLOUDSTIC_STORE="`+server.URL("$HOME/on-nas")+`"; repolock -- cloudstic prune || echo "refused: $?"`),
			"keep the lock in another place", "refused: 64\n")
		p.at = ""
		p.mkdir("locks")
		p.cloudstic(p.without(env, `CLOUDSTIC_STORE="`+server.URL("$HOME/on-nas")+`" REPOLOCK_REPO="`+server.URL("$HOME/locks")+`"`))
		assert.That(p.t, p.exists("on-nas/config") && p.exists("locks/index/lock.shared"), "the repository, or the lock, wasn't on the server")
	})
}

// without replaces the repository in the page's first block, and returns that block. The second one reads a directory.
func (p *page) without(repository, replacement string) string {
	p.Fenced["sh"] = p.Fenced["sh"][:1]
	return p.moved(strings.NewReplacer(repository, replacement))
}

// knownCommands checks that repolock knows each command that Cloudstic's help lists.
func (p *page) knownCommands() {
	p.t.Helper()
	listed := regexp.MustCompile(`(?m)^  \x1b\[32m([a-z][a-z -]*[a-z]) *\x1b\[0m`).FindAllStringSubmatch(p.sh("cloudstic help"), -1)
	assert.That(p.t, len(listed) >= 25, "the help lists %d commands", len(listed))
	table := p.sh(`repolock doctor -- cloudstic`)
	for _, m := range listed {
		first, _, _ := strings.Cut(m[1], " ")
		assert.That(p.t, strings.Contains(table, "\n"+m[1]+" ") || strings.Contains(table, "\n"+first+" "), "repolock doesn't know cloudstic %s:\n%s", m[1], table)
	}
}

// cloudstic runs a script of the page, and its crontab.
func (p *page) cloudstic(script string) {
	p.t.Helper()
	p.contains(p.sh(script), "Restore complete.")
	p.sh(`cd "$HOME/restored"; cmp letter "$HOME/documents/letter" || cmp cat "$HOME/pictures/cat"`) // the last snapshot
	p.unlocked()
	for _, command := range p.Crontab() {
		assert.Equal(p.t, p.sh(command), "", "what cron would mail")
	}
	p.refuses("repolock -- cloudstic prune", `repolock -- cloudstic backup -source "local:$HOME/documents" -exclude-file /dev/stdin`)
	out := p.sh(`. "$HOME/backup.env"; cloudstic list; repolock -v -- cloudstic check -read-data 2>&1`)
	p.contains(out, "/documents", "/pictures", "cloudstic check: the shared lock in", "No errors found")
	p.unlocked()
}

// killedCloudstic kills a backup with its repolock. Cloudstic's own lock must block a prune for a minute, and Cloudstic
// must leave the flag of the killed backup, which an exclusive lock of repolock then deletes.
func (p *page) killedCloudstic() {
	p.t.Helper()
	out := p.sh(`. "$HOME/backup.env"
		mkdir "$HOME/large"
		truncate -s 50G "$HOME/large/file"
		repolock --ttl 10s -- cloudstic backup -quiet -source "local:$HOME/large" &
		killed=$!
		cd "$HOME/backups/index"
		until ls lock.shared | grep .; do sleep 0.1; done
		kill -9 $killed
		wait $killed || echo "killed: $?"
		repolock --wait 5m -- cloudstic prune || echo "blocked: $?"
		began=$(date +%s)
		until repolock -q -- cloudstic prune >/dev/null 2>&1; do sleep 1; done
		echo "for $(($(date +%s) - began)) s"
		ls lock.shared | sed 's/^/left: /'
		repolock -r "$HOME/backups" run --exclusive --operation copy --wait 5m -- true
		ls lock.shared | sed 's/^/still left: /'`)
	p.contains(out, "killed: 137\n", "blocked: 1\n", "\nleft: 20")
	assert.That(p.t, !strings.Contains(out, "still left"), "%s", out)
	p.t.Log(regexp.MustCompile(`for \d+ s`).FindString(out))
}
