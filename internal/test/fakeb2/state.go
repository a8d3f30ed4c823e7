package fakeb2

import (
	"fmt"
	"slices"
	"time"
)

// Bucket is a bucket's settings.
type Bucket struct {
	ID   string // set by the server
	Name string
	// FileLock keeps versions from being deleted for the time of Retain.
	FileLock bool
	Retain   time.Duration
}

// Version is one version of a name: an upload or a hide marker.
type Version struct {
	ID          string
	Bucket      string // its ID
	Name        string
	Action      string // "upload", "hide"
	Timestamp   int64  // in ms
	ContentType string
	Body        []byte
}

// state is the stored versions.
type state struct {
	buckets []*bucket
	serial  int // of IDs
}

type bucket struct {
	Bucket
	names    []string // in byte order
	versions map[string][]Version
}

func (s *state) addBucket(b Bucket) {
	s.serial++
	b.ID = fmt.Sprintf("%024x", s.serial)
	s.buckets = append(s.buckets, &bucket{Bucket: b, versions: map[string][]Version{}})
}

// newVersion stores a version with an ID and a timestamp of its own.
func (s *state) newVersion(b *bucket, v Version, now time.Time) Version {
	v.Bucket, v.Timestamp = b.ID, now.UnixMilli()
	if below := b.versions[v.Name]; len(below) > 0 {
		v.Timestamp = max(v.Timestamp, below[0].Timestamp+1)
	}
	s.serial++
	v.ID = fmt.Sprintf("4_z%s_f%018x_d%s_c000_v0000000_t0000", b.ID, s.serial, now.UTC().Format("20060102_m150405"))
	b.add(v)
	return v
}

func (s *state) named(name string) *bucket {
	return s.find(func(b *bucket) bool { return b.Name == name })
}

func (s *state) withID(id string) *bucket {
	return s.find(func(b *bucket) bool { return b.ID == id })
}

func (s *state) find(is func(*bucket) bool) *bucket {
	if i := slices.IndexFunc(s.buckets, is); i >= 0 {
		return s.buckets[i]
	}
	return nil
}

// version finds a version by its ID alone.
func (s *state) version(id string) (*bucket, *Version) {
	for _, b := range s.buckets {
		for _, versions := range b.versions {
			for i := range versions {
				if versions[i].ID == id {
					return b, &versions[i]
				}
			}
		}
	}
	return nil, nil
}

func (b *bucket) add(v Version) {
	if len(b.versions[v.Name]) == 0 {
		at, _ := slices.BinarySearch(b.names, v.Name)
		b.names = slices.Insert(b.names, at, v.Name)
	}
	// A new slice, since observers can keep the old one.
	b.versions[v.Name] = append([]Version{v}, b.versions[v.Name]...)
}

func (b *bucket) remove(v Version) {
	left := slices.DeleteFunc(slices.Clone(b.versions[v.Name]), func(o Version) bool { return o.ID == v.ID })
	if len(left) > 0 {
		b.versions[v.Name] = left
		return
	}
	delete(b.versions, v.Name)
	at, _ := slices.BinarySearch(b.names, v.Name)
	b.names = slices.Delete(b.names, at, at+1)
}

// visible is the version that is downloaded, nil if there is none.
func (b *bucket) visible(name string) *Version {
	if v := b.versions[name]; len(v) > 0 && v[0].Action == "upload" {
		return &v[0]
	}
	return nil
}
