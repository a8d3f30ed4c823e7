package fakeb2

import (
	"net/http"
	"slices"
	"strings"
)

const (
	defaultCount = 100
	maxCount     = 10_000
)

func (s *Server) listNames(_ *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, p.Prefix)
	if err != nil {
		return nil, err
	}
	page, err := s.newPage(p)
	if err != nil {
		return nil, err
	}
	for _, name := range b.from(p.StartFileName, p.Prefix) {
		if v := b.visible(name); v != nil && !page.add(*v) {
			return map[string]any{"files": page.files, "nextFileName": name}, nil
		}
	}
	return map[string]any{"files": page.files, "nextFileName": nil}, nil
}

func (s *Server) listVersions(_ *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, p.Prefix)
	if err != nil {
		return nil, err
	}
	if p.StartFileID != "" && p.StartFileName == "" {
		return nil, badRequest("startFileId needs startFileName")
	}
	page, err := s.newPage(p)
	if err != nil {
		return nil, err
	}
	for _, name := range b.from(p.StartFileName, p.Prefix) {
		versions := b.versions[name]
		if name == p.StartFileName && p.StartFileID != "" {
			versions = after(versions, p.StartFileID)
		}
		for _, v := range versions {
			if !page.add(v) {
				return map[string]any{"files": page.files, "nextFileName": name, "nextFileId": v.ID}, nil
			}
		}
	}
	return map[string]any{"files": page.files, "nextFileName": nil, "nextFileId": nil}, nil
}

// after returns the versions from this one on, or if it is gone the older ones. IDs of one
// name are in the order of their uploads.
func after(versions []Version, id string) []Version {
	i := slices.IndexFunc(versions, func(v Version) bool { return v.ID <= id })
	if i < 0 {
		return nil
	}
	return versions[i:]
}

// from returns the names that begin with prefix, from start on.
func (b *bucket) from(start, prefix string) []string {
	first, _ := slices.BinarySearch(b.names, max(start, prefix))
	names := b.names[first:]
	last := slices.IndexFunc(names, func(name string) bool { return !strings.HasPrefix(name, prefix) })
	if last >= 0 {
		names = names[:last]
	}
	return names
}

// page is a listing under way.
type page struct {
	params
	files  []any
	folder string // the last one that was listed
}

func (s *Server) newPage(p params) (*page, error) {
	switch {
	case p.MaxFileCount < 0 || p.MaxFileCount > maxCount:
		return nil, badRequest("maxFileCount out of range: %d", p.MaxFileCount)
	case p.MaxFileCount == 0:
		p.MaxFileCount = defaultCount
	}
	if s.opts.PageSize > 0 {
		p.MaxFileCount = min(p.MaxFileCount, s.opts.PageSize)
	}
	return &page{params: p, files: []any{}}, nil
}

// add adds a version, or its folder, and reports whether there was room for it.
func (p *page) add(v Version) bool {
	folder := ""
	if p.Delimiter != "" {
		if i := strings.Index(v.Name[len(p.Prefix):], p.Delimiter); i >= 0 {
			folder = v.Name[:len(p.Prefix)+i+len(p.Delimiter)]
		}
	}
	if folder != "" && folder == p.folder {
		return true
	}
	if len(p.files) == p.MaxFileCount {
		return false
	}
	p.folder = folder
	if folder != "" {
		p.files = append(p.files, map[string]any{"action": "folder", "fileName": folder, "contentLength": 0, "fileId": nil, "uploadTimestamp": 0})
		return true
	}
	p.files = append(p.files, file(v))
	return true
}
