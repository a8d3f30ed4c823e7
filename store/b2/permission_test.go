package b2_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/requests"
	"github.com/repolock/repolock/store"
)

// TestLacking: if an application key lacks a capability, the methods that need the capability return an
// error with its name, and the others succeed.
func TestLacking(t *testing.T) {
	for lacking, needed := range map[string][]string{
		"listFiles":   {"list"},
		"readFiles":   {"get"},
		"writeFiles":  {"put"},
		"deleteFiles": {},
		"listBuckets": {"put", "get", "list", "delete"},
	} {
		t.Run(lacking, func(t *testing.T) {
			f, _, _ := stored(t, "old")
			may := slices.DeleteFunc(slices.Clone(fakeb2.All), func(c string) bool { return c == lacking })
			for name, err := range requests.Each(t.Context(), f.openAs(t, fakeb2.Key{Capabilities: may}), "k") {
				if slices.Contains(needed, name) {
					assert.Says(t, err, store.ErrPermission, lacking, name)
				} else {
					assert.Is(t, err, nil, name)
				}
			}
		})
	}
}

// TestDeleteWithoutPermission: a key that can't delete hides the object. If it can't hide either, the
// error has both capabilities.
func TestDeleteWithoutPermission(t *testing.T) {
	f, _, _ := stored(t, "1")
	s := f.openAs(t, fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles"}})
	err := s.Delete(t.Context(), "k")
	assert.Says(t, err, store.ErrPermission, "deleteFiles")
	assert.Says(t, err, store.ErrPermission, "writeFiles")
	f.has(t, "1")

	s = f.openAs(t, noDelete)
	for range 2 { // the second time there is no object
		assert.Is(t, s.Delete(t.Context(), "k"), nil)
		f.has(t, "-", "1")
	}
	assert.Is(t, s.Delete(t.Context(), "never there"), nil)
	empty(t, s)
	put(t, s, "k", "2")
	f.has(t, "2", "-", "1")
}

// TestRetained: Delete hides an object whose versions Object Lock retains.
func TestRetained(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	f.AddBucket(fakeb2.Bucket{Name: "locked-bucket", FileLock: true, Retain: time.Hour})
	s := open(t, "b2://locked-bucket?endpoint="+f.url)
	o := put(t, s, "k", "1")
	replace(t, s, "k", "2", o.ETag)
	assert.OK(t, s.Delete(t.Context(), "k"))
	empty(t, s)
	left := f.Versions("locked-bucket")
	assert.That(t, len(left) == 3 && left[0].Action == "hide", "nothing was retained: %+v", left)
	late := assert.Err(s.Put(t.Context(), "k", []byte("3"), store.PutOptions{Replaces: o.ETag}))
	assert.Is(t, late, store.ErrPrecondition)
	empty(t, s)
}

func empty(t *testing.T, s store.Store) {
	t.Helper()
	keys, err := store.Keys(t.Context(), s, "")
	assert.Is(t, err, nil)
	assert.Equal(t, keys, nil)
}

// TestRestricted: a key can be restricted to buckets and a prefix. If they exclude the repository, the
// error names them.
func TestRestricted(t *testing.T) {
	for _, test := range []struct {
		buckets, prefix string
		err             error // nil: the key works
		says            string
	}{
		{bucket, "", nil, ""},
		{"", prefix, nil, ""},
		{bucket, prefix, nil, ""},
		{bucket, "some/pre", nil, ""},
		{bucket, prefix + "index/", nil, ""},
		{bucket, "other/", store.ErrPermission, `"other/"`},
		{bucket, prefix + "index/lock.shared/", store.ErrPermission, `"` + prefix + `index/lock.shared/"`},
		{"b-bucket", "", store.ErrConfig, "b-bucket"},
		{"gone-bucket", "", store.ErrNotFound, "gone"},
		{"b-bucket " + bucket, "", nil, ""},
		{"gone-bucket " + bucket, prefix, nil, ""},
		{"b-bucket c-bucket gone-bucket", "", store.ErrConfig, "b-bucket, c-bucket, and this is a-bucket"},
		{"gone-bucket gone-too", "", store.ErrNotFound, "gone"},
	} {
		t.Run(test.buckets+" "+test.prefix, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			for _, name := range []string{"b-bucket", "c-bucket"} {
				f.AddBucket(fakeb2.Bucket{Name: name})
			}
			k := fakeb2.Key{Prefix: test.prefix, Capabilities: least}
			if k.Buckets = strings.Fields(test.buckets); len(k.Buckets) == 0 {
				k.Buckets, k.Capabilities = nil, append([]string{"listBuckets"}, least...)
			}
			s := f.openAs(t, k)
			for range 2 {
				for name, err := range requests.Each(t.Context(), s, "index/lock.exclusive") {
					assert.Says(t, err, test.err, test.says, name)
				}
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	f.AddBucket(fakeb2.Bucket{Name: "locked-bucket", FileLock: true})
	locks := func(s store.Describer) store.Answer {
		t.Helper()
		d, err := s.Describe(t.Context())
		assert.That(t, err == nil && d.Versioning == store.Yes && d.Server != "", "%+v, %v", d, err)
		return d.ObjectLock
	}
	assert.Equal(t, locks(f.open(t)), store.No, "object lock")
	assert.Equal(t, locks(open(t, "b2://locked-bucket?endpoint="+f.url)), store.Yes, "object lock")
	for _, k := range []fakeb2.Key{
		{Capabilities: append([]string{"listBuckets"}, least...)}, {Capabilities: least, Buckets: []string{bucket}, Prefix: prefix},
		{Capabilities: least, Buckets: []string{bucket, "b-bucket"}},
	} {
		assert.Equal(t, locks(f.openAs(t, k)), store.Unknown, "object lock")
	}
}
