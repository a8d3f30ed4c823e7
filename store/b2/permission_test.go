package b2_test

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
)

// TestLacking: if an application key lacks a capability, the methods that need it return an
// error with its name, and the others work.
func TestLacking(t *testing.T) {
	for lacking, needed := range map[string][]string{
		"listFiles":   {"list"},
		"readFiles":   {"get"},
		"writeFiles":  {"put"},
		"deleteFiles": {},
		"listBuckets": {"put", "get", "list", "delete"},
	} {
		t.Run(lacking, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			put(t, f.open(t), "k", "old")
			may := slices.DeleteFunc(slices.Clone(fakeb2.All), func(c string) bool { return c == lacking })
			for name, err := range methods(t, f.openAs(t, fakeb2.Key{Capabilities: may}), "k") {
				if !slices.Contains(needed, name) {
					if err != nil {
						t.Errorf("%s: %v", name, err)
					}
				} else if !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), lacking) {
					t.Errorf("%s: %v", name, err)
				}
			}
		})
	}
}

// TestDeleteWithoutPermission: Delete hides the object, or returns an error with all lacking
// capabilities.
func TestDeleteWithoutPermission(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	put(t, f.open(t), "k", "1")
	s := f.openAs(t, fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles"}})
	err := s.Delete(t.Context(), "k")
	if !errors.Is(err, store.ErrPermission) || !strings.Contains(err.Error(), "deleteFiles") || !strings.Contains(err.Error(), "writeFiles") {
		t.Error(err)
	}
	f.has(t, "1")

	s = f.openAs(t, noDelete)
	for range 2 { // the second time there is no object
		if err := s.Delete(t.Context(), "k"); err != nil {
			t.Error(err)
		}
		f.has(t, "-", "1")
	}
	if err := s.Delete(t.Context(), "never there"); err != nil {
		t.Error(err)
	}
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Objects) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	put(t, s, "k", "2")
	f.has(t, "2", "-", "1")
}

// TestRetained: Delete hides versions that Object Lock retains.
func TestRetained(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	f.AddBucket(fakeb2.Bucket{Name: "locked-bucket", FileLock: true, Retain: time.Hour})
	s := open(t, "b2://locked-bucket?endpoint="+f.url)
	o := put(t, s, "k", "1")
	replace(t, s, "k", "2", o.ETag)
	must(t, s.Delete(t.Context(), "k"))
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Objects) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
	if left := f.Versions("locked-bucket"); len(left) != 3 || left[0].Action != "hide" {
		t.Errorf("nothing was retained: %+v", left)
	}
	if _, err := s.Put(t.Context(), "k", []byte("3"), store.PutOptions{Replaces: o.ETag}); !errors.Is(err, store.ErrPrecondition) {
		t.Error(err)
	}
	if page, err := s.List(t.Context(), "", ""); err != nil || len(page.Objects) != 0 {
		t.Errorf("%+v, %v", page, err)
	}
}

// TestRestricted: a key can be restricted to a bucket and a prefix.
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
				for name, err := range methods(t, s, "index/lock.exclusive") {
					if !errors.Is(err, test.err) || err != nil && !strings.Contains(err.Error(), test.says) {
						t.Errorf("%s: %v", name, err)
					}
				}
			}
		})
	}
}

func TestDescribe(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	f.AddBucket(fakeb2.Bucket{Name: "locked-bucket", FileLock: true})
	told := func(s store.Describer) store.Answer {
		t.Helper()
		d, err := s.Describe(t.Context())
		if err != nil || d.Versioning != store.Yes || d.Server == "" {
			t.Errorf("%+v, %v", d, err)
		}
		return d.ObjectLock
	}
	if got := told(f.open(t)); got != store.No {
		t.Errorf("object lock: %v", got)
	}
	if got := told(open(t, "b2://locked-bucket?endpoint="+f.url)); got != store.Yes {
		t.Errorf("object lock: %v", got)
	}
	for _, k := range []fakeb2.Key{
		{Capabilities: append([]string{"listBuckets"}, least...)}, {Capabilities: least, Buckets: []string{bucket}, Prefix: prefix},
		{Capabilities: least, Buckets: []string{bucket, "b-bucket"}},
	} {
		if got := told(f.openAs(t, k)); got != store.Unknown {
			t.Errorf("object lock: %v", got)
		}
	}
}
