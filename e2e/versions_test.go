//go:build unix && minio

package e2e

import (
	"slices"
	"strings"
	"testing"

	"github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/replock"
)

// These tests use buckets that keep versions, and buckets that must not lose any for a time. That versions of
// other writers are neither uncovered nor removed is a test's of store/internal/s3api.

// bucketVersions is the versions of each key of a bucket, the newest first.
type bucketVersions map[string][]minio.ObjectInfo

func (p place) history(t testing.TB) bucketVersions {
	t.Helper()
	h := bucketVersions{}
	for o := range rootOf(t).ListObjects(t.Context(), p.bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		assert.OK(t, o.Err)
		h[o.Key] = append(h[o.Key], o)
	}
	return h
}

// visible returns the keys that have an object.
func (h bucketVersions) visible() (keys []string) {
	for key, versions := range h {
		if !versions[0].IsDeleteMarker {
			keys = append(keys, key)
		}
	}
	return keys
}

// counts returns how many versions each key has, markers too.
func (h bucketVersions) counts() (counts []int) {
	for _, versions := range h {
		counts = append(counts, len(versions))
	}
	return counts
}

// renewals is more than the renewals that prove a condition.
const renewals = 4

// liveOnce takes a lock, renews it a few times, and releases it.
func liveOnce(t *testing.T, l *replock.Locker, mode replock.Mode, held func(renewed int)) {
	t.Helper()
	k := acquire(t, l, mode)
	held(0)
	for i := range renewals {
		assert.Is(t, k.Refresh(t.Context()), nil)
		held(i + 1)
	}
	assert.Is(t, k.Release(t.Context()), nil)
}

// TestVersions: a lock leaves nothing visible, and nothing at all if its versions can be
// removed.
func TestVersions(t *testing.T) {
	t.Parallel()
	for _, k := range onMinIOs {
		for _, mode := range []replock.Mode{replock.Shared, replock.Exclusive} {
			t.Run(k.name+", "+mode.String(), func(t *testing.T) {
				t.Parallel()
				buckets := miniotest.Buckets(t)
				for _, name := range []string{"versioned", "object lock"} {
					t.Run(name, func(t *testing.T) {
						versions(t, place{k, k.shared(t), buckets[name].Bucket()}, mode, name == "object lock")
					})
				}
			})
		}
	}
}

func versions(t *testing.T, p place, mode replock.Mode, stay bool) {
	l := newLocker(t, p.repo(), "")
	for range 2 {
		liveOnce(t, l, mode, func(renewed int) {
			h := p.history(t)
			if want := int(mode); len(h.visible()) != want { // an exclusive lock has two objects
				t.Errorf("renewed %d times: %d are visible, want %d:%v", renewed, len(h.visible()), want, h)
			}
			assert.That(t, stay || slices.Max(h.counts()) <= 2, "renewed %d times: more than one old version of a key:%v", renewed, h)
		})
		h := p.history(t)
		switch {
		case len(h.visible()) > 0:
			t.Errorf("released, and %q are visible:%v", h.visible(), h)
		case stay && slices.Min(h.counts()) < renewals+2: // with the first put, and the marker
			t.Errorf("versions that had to stay are gone:%v", h)
		case !stay && len(h) > 0:
			t.Errorf("left over:%v", h)
		}
	}
}

// TestVersionPermissions: with the policy of docs/permissions.md for prunes and its permissions for
// versions, old versions are removed. If a permission is denied, or the bucket retains
// versions, they stay, and nothing else differs.
func TestVersionPermissions(t *testing.T) {
	t.Parallel()
	const deny = `{"Version": "2012-10-17", "Statement": [
  {"Effect": "Deny", "Action": "s3:DeleteObjectVersion", "Resource": "arn:aws:s3:::BUCKET/*"},`
	granted := strings.NewReplacer(
		`"s3:DeleteObject"`, `"s3:DeleteObject", "s3:DeleteObjectVersion"`,
		`"s3:ListBucket"`, `["s3:ListBucket", "s3:ListBucketVersions"]`,
	)
	for _, k := range onMinIOs {
		buckets := miniotest.Buckets(t)
		for _, c := range []struct {
			what, bucket string
			change       *strings.Replacer
			stay         bool
		}{
			{"allowed", "versioned", granted, false},
			{"denied", "versioned", strings.NewReplacer(`{"Version": "2012-10-17", "Statement": [`, deny), true},
			{"kept", "object lock", granted, true},
		} {
			t.Run(k.name+", "+c.what, func(t *testing.T) {
				t.Parallel()
				p := place{k, k.shared(t), buckets[c.bucket].Bucket()}
				if c.what == "denied" { // a bucket without the right
					p.bucket = k.on(k.shared(t)).bucket
					assert.OK(t, rootOf(t).EnableVersioning(t.Context(), p.bucket))
				}
				plain := string(policy(t, "exclusive", p))
				changed := strings.ReplaceAll(c.change.Replace(plain), "BUCKET", p.bucket)
				assert.Need(t, changed != plain, "the policy isn't changed: %s", plain)
				s := p.site(t)
				s.env = newAccount(t, p, []byte(changed)).env
				s.holdsOn("prune")
				s.passes("backup", 0)
				s.nothingLeft()
				if c.stay {
					h := p.history(t)
					assert.That(t, slices.Max(h.counts()) >= 5, "versions:%v", h)
					return
				}
				// repolock gives up a removal that isn't answered soon, as on a busy machine.
				s.until("locks that leave no version", func() bool {
					before := len(p.history(t))
					s.passes("prune", 0)
					s.passes("backup", 0)
					return len(p.history(t)) == before
				})
			})
		}
	}
}
