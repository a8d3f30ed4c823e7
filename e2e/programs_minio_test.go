//go:build linux && minio && programs

package e2e

import (
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestPrograms: the pages' scripts with the repository, and the lock, on MinIO.
func TestPrograms(t *testing.T) {
	b := onS3.on(onS3.shared(t))
	env := []string{"ENDPOINT=" + b.Endpoint(), "BUCKET=" + b.bucket}
	for name, value := range credentials {
		env = append(env, name+"="+value)
	}
	t.Run("rclone", func(t *testing.T) {
		p := newPage(t, "rclone.md")
		p.env = env
		in, script := strings.CutPrefix(p.Script(), "cat >\"$HOME/backup.env\"")
		assert.Need(t, script, "the script doesn't begin with its environment")
		// The page's own variable for a bucket has the other bucket's name.
		in = "cat >\"$HOME/directory.env\"" + strings.Replace(in, "bucket.env", "backup.env", 1)
		p.rclone(in)
		assert.That(t, !p.exists("remote/data/documents"), "it wasn't the bucket that was used")
	})
	for name, version := range map[string]resticVersion{"debian": debianRestic, "new": newRestic} {
		t.Run(name+" restic", func(t *testing.T) {
			p := newPage(t, "restic.md")
			p.env = env
			if version == newRestic {
				p.newerRestic()
			}
			p.restic(p.moved(strings.NewReplacer(
				`RESTIC_REPOSITORY="$HOME/backups"`, `RESTIC_REPOSITORY="s3:$ENDPOINT/$BUCKET/`+name+`"`,
				`--from-repo "$HOME/backups"`, `--from-repo "s3:$ENDPOINT/$BUCKET/`+name+`"`,
				`-r "$HOME/backups"`, `-r "s3://$BUCKET/`+name+`?endpoint=$ENDPOINT"`,
			)), version)
			assert.That(t, !p.exists("backups"), "it wasn't the bucket that was used")
		})
	}
	t.Run("kopia", func(t *testing.T) {
		p := newPage(t, "kopia.md")
		p.env = env
		_, host, _ := strings.Cut(b.Endpoint(), "://")
		p.kopia(p.moved(strings.NewReplacer(`create filesystem --path "$HOME/kopia"`, "create s3 --bucket \"$BUCKET\" --prefix kopia/ --disable-tls --endpoint "+host)))
		assert.That(t, !p.exists("kopia/kopia.repository.f") && !p.exists("kopia-lock/index"), "it wasn't the bucket that was used")
	})
	t.Run("README.md", func(t *testing.T) {
		b := onS3.on(onS3.shared(t)) // another bucket
		p := newSection(t, "On S3")
		script := strings.NewReplacer(
			"https://HOST", b.Endpoint(), "BUCKET", b.bucket,
			"=KEY", "="+credentials["AWS_ACCESS_KEY_ID"], "=SECRET", "="+credentials["AWS_SECRET_ACCESS_KEY"],
		).Replace(p.Script())
		p.contains(p.sh(script), "snapshot")
		for _, name := range []string{"backups", "restic"} {
			assert.That(t, !p.exists(name), "%s isn't in the bucket", name)
		}
	})
}
