package s3api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
)

// late returns store.ErrConfig if the server keeps listings in memory, so that two such servers of one directory show
// each other's locks minutes late.
func (s *Store) late(r *request) error {
	if s.place.Fresh || !r.ofRclone() {
		return nil
	}
	return fault.Advise(fault.New(store.ErrConfig, "%s looks like rclone serve s3, which can show the locks of other machines minutes late", s.place.Host),
		"use the URL of the storage itself; or, if all machines use this one server, and nothing else writes into its directory, add listings=fresh to the URL")
}

// ofRclone reports whether an answer looks like one of rclone serve s3, which calls itself AmazonS3. Each answer of its
// library permits web pages the same headers. No other server permits x-amz-meta-private.
func (r *request) ofRclone() bool {
	return strings.Contains(r.answer.Header("Access-Control-Allow-Headers"), "x-amz-meta-private")
}

// document is the parsed body of a success: a listing, versions, deletions, or a setting.
type document struct {
	XMLName                                                                           xml.Name
	Name, EncodingType, IsTruncated, NextContinuationToken, Status, ObjectLockEnabled string
	Prefix                                                                            *string
	Entries                                                                           []entry `xml:",any"`
}

// entry is an object, a version or a deletion in a document.
type entry struct {
	XMLName                                                                   xml.Name
	Key, ETag, Size, LastModified, VersionId, IsLatest, DeleteMarkerVersionId string
}

// time returns when the object was written. Some servers send UTC without a zone.
func (e entry) time() (time.Time, error) {
	if t, err := time.Parse(time.RFC3339, e.LastModified); err == nil {
		return t, nil
	}
	return time.Parse("2006-01-02T15:04:05", e.LastModified)
}

// read parses a document. Its root element must have this name. The client libraries would treat an empty body, or any
// other XML, as an empty document.
func read(root string, body []byte) (d document, err error) {
	decoder := xml.NewDecoder(bytes.NewReader(body))
	err = decoder.Decode(&d)
	switch {
	case d.XMLName.Local != root:
		return d, unfit("it answers without a " + root)
	case err == nil && len(bytes.TrimSpace(body[decoder.InputOffset():])) > 0: // the decoder ignores it, and it can list locks
		return d, fmt.Errorf("there is more data after the end of the %s", root)
	case err != nil:
		return d, fmt.Errorf("it is cut off, or isn't what S3 answers: %v", err)
	}
	for i := range d.Entries {
		if d.Entries[i].Key, err = d.decoded(d.Entries[i].Key); err != nil {
			return d, err
		}
	}
	return d, nil
}

// decoded returns a key or prefix of a document without its URL encoding. minio-go asks the server to encode them.
func (d document) decoded(key string) (string, error) {
	if d.EncodingType != "url" {
		return key, nil
	}
	return url.QueryUnescape(key)
}

// named returns the entries whose elements have one of these names.
func (d document) named(names ...string) []entry {
	return slices.DeleteFunc(d.Entries, func(e entry) bool { return !slices.Contains(names, e.XMLName.Local) })
}

// page returns the page of a listing. It returns an error unless the listing is complete, in order, and for this
// prefix.
func (s *Store) page(d document, prefix string) (page store.Page, err error) {
	goesOn, err := strconv.ParseBool(d.IsTruncated)
	switch {
	case d.Name == "":
		return page, unfit("its listing names no bucket")
	case err != nil:
		return page, unfit("its listing doesn't say whether it goes on")
	}
	if want := s.place.Prefix + prefix; d.Prefix != nil {
		if got, err := d.decoded(*d.Prefix); err != nil || got != want {
			return page, fmt.Errorf("the listing is of %q, not of %q: is there a cache in between?", *d.Prefix, want)
		}
	}
	for _, e := range d.named("Contents") {
		// The libraries treat a missing size as 0, and an empty object means a released lock.
		size, err := strconv.ParseUint(e.Size, 10, 63)
		if err != nil || e.LastModified == "" {
			return page, unfit("its listing has objects without a size or a time")
		}
		modified, err := e.time()
		if err != nil {
			return page, err
		}
		key, ok := strings.CutPrefix(e.Key, s.place.Prefix)
		if !ok || !strings.HasPrefix(key, prefix) {
			return page, fmt.Errorf("the listing has %q, which wasn't asked for", e.Key)
		}
		page.Objects = append(page.Objects, store.Object{Key: key, ETag: etag(e.ETag), Size: int64(size), ModTime: modified})
	}
	page.Objects = merged(page.Objects)
	n := len(page.Objects)
	switch {
	case !slices.IsSortedFunc(page.Objects, func(a, b store.Object) int { return strings.Compare(a.Key, b.Key) }):
		return page, fmt.Errorf("%w: it isn't in order", store.ErrListing)
	case goesOn && d.NextContinuationToken == "":
		return page, errors.New("a listing isn't complete, and the server sends no cursor for its next page")
	case goesOn && s.place.KeyCursor && n == 0:
		return page, fmt.Errorf("%w: a page is empty, although the listing goes on", store.ErrListing)
	case goesOn && s.place.KeyCursor:
		page.Next = s.place.Prefix + page.Objects[n-1].Key
	case goesOn:
		page.Next = d.NextContinuationToken
	}
	return page, nil
}

// merged keeps one object for each key, because some servers list a key twice while it is overwritten. The newer object
// counts. But an object with a body counts more than an empty one, because an empty one means that the lock was
// released.
func merged(objects []store.Object) []store.Object {
	out := objects[:0]
	for _, o := range objects {
		n := len(out)
		switch {
		case n == 0 || out[n-1].Key != o.Key:
			out = append(out, o)
		case out[n-1].Size == 0 || o.Size > 0 && !o.ModTime.Before(out[n-1].ModTime):
			out[n-1] = o
		}
	}
	return out
}
