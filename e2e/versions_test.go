//go:build unix && minio

package e2e

import (
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/replock"
)

// These tests use buckets that keep versions, buckets that must not lose any for a time, and
// buckets that the server encrypts.

// bucketVersions is the versions of each key of a bucket, the newest first.
type bucketVersions map[string][]minio.ObjectInfo

func (p place) history(t testing.TB) bucketVersions {
	t.Helper()
	h := bucketVersions{}
	for o := range rootOf(t).ListObjects(t.Context(), p.bucket, minio.ListObjectsOptions{Recursive: true, WithVersions: true}) {
		if o.Err != nil {
			t.Fatal(o.Err)
		}
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

// live takes a lock, renews it a few times, and releases it.
func live(t *testing.T, l *replock.Locker, mode replock.Mode, held func(renewed int)) {
	t.Helper()
	k := acquire(t, l, mode)
	held(0)
	for i := range renewals {
		assert.Is(t, k.Renew(t.Context()), nil)
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
		live(t, l, mode, func(renewed int) {
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

// TestOldVersions: older versions of other writers are neither uncovered nor removed.
func TestOldVersions(t *testing.T) {
	t.Parallel()
	for _, k := range onMinIOs {
		buckets := miniotest.Buckets(t)
		for _, name := range []string{"versioned", "object lock"} {
			t.Run(k.name+", "+name, func(t *testing.T) {
				t.Parallel()
				oldVersions(t, place{k, k.shared(t), buckets[name].Bucket()})
			})
		}
	}
}

func oldVersions(t *testing.T, p place) {
	const key = "some/prefix/index/lock.exclusive"
	const crashed = `{"operation":"prune","holder":"h (pid 1)","expires_at":"2020-01-01T00:00:00Z","ttl_seconds":10}`
	l := newLocker(t, p.repo(), "")
	check := func(old []minio.ObjectInfo) {
		t.Helper()
		now := p.history(t)[key]
		assert.That(t, len(now) != 0 && now[0].IsDeleteMarker, "it is visible: %v", now)
		for _, o := range old {
			assert.That(t, slices.ContainsFunc(now, func(n minio.ObjectInfo) bool { return n.VersionID == o.VersionID }), "%+v was removed", o)
		}
	}
	// Deleted by a client that doesn't use versions.
	putAsRoot(t, p.bucket, key, crashed)
	assert.OK(t, rootOf(t).RemoveObject(t.Context(), p.bucket, key, minio.RemoveObjectOptions{}))
	old := p.history(t)[key]
	stop := neverShows(t, p, key, crashed)
	live(t, l, replock.Exclusive, func(int) {})
	stop()
	check(old)

	// A crashed holder's lock, which is overwritten.
	putAsRoot(t, p.bucket, key, crashed)
	old = p.history(t)[key]
	time.Sleep(ttl + 4*time.Second)
	live(t, l, replock.Exclusive, func(renewed int) {
		if renewed == 0 {
			stop = neverShows(t, p, key, crashed)
		}
	})
	stop()
	check(old)
}

// neverShows reads a key over and over until it is stopped, and fails the test if it sees this
// body.
func neverShows(t *testing.T, p place, key, body string) (stop func()) {
	root := minio.Core{Client: rootOf(t)}
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		reads, shown := 0, 0
		for {
			select {
			case <-end:
				assert.That(t, shown == 0 && reads > 0, "an old version was uncovered in %d of %d reads", shown, reads)
				return
			default:
			}
			stream, _, _, err := root.GetObject(t.Context(), p.bucket, key, minio.GetObjectOptions{})
			if err == nil {
				var raw []byte
				if raw, err = io.ReadAll(stream); string(raw) == body {
					shown++
				}
				_ = stream.Close()
			}
			assert.That(t, err == nil || minio.ToErrorResponse(err).Code == minio.NoSuchKey, "%v", err)
			reads++
		}
	}()
	return func() { close(end); <-ended }
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
				if c.what == "denied" { // not the one that is allowed
					p.bucket = k.on(k.shared(t)).bucket
					assert.OK(t, rootOf(t).EnableVersioning(t.Context(), p.bucket))
				}
				plain := string(policy(t, "exclusive", p))
				changed := strings.ReplaceAll(c.change.Replace(plain), "BUCKET", p.bucket)
				if changed == plain {
					t.Fatalf("the policy isn't changed: %s", plain)
				}
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
				// A removal that isn't answered soon is given up, as on a busy machine.
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
