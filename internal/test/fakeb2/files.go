package fakeb2

import (
	"crypto/sha1"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// params has the parameters of all calls.
type params struct {
	AccountID     string `json:"accountId"`
	BucketID      string `json:"bucketId"`
	BucketName    string `json:"bucketName"`
	FileName      string `json:"fileName"`
	FileID        string `json:"fileId"`
	SourceFileID  string `json:"sourceFileId"`
	StartFileName string `json:"startFileName"`
	StartFileID   string `json:"startFileId"`
	MaxFileCount  int    `json:"maxFileCount"`
	Prefix        string `json:"prefix"`
}

// calls are the calls that take an account's token and answer with JSON, with the capability
// that each needs. They run under the server's lock.
var calls = map[string]struct {
	capability string
	do         func(*Server, *http.Request, Key, params) (any, error)
}{
	"b2_list_buckets":        {"listBuckets", (*Server).listBuckets},
	"b2_get_upload_url":      {"writeFiles", (*Server).uploadURL},
	"b2_list_file_names":     {"listFiles", (*Server).listNames},
	"b2_list_file_versions":  {"listFiles", (*Server).listVersions},
	"b2_copy_file":           {"writeFiles", (*Server).copyFile},
	"b2_hide_file":           {"writeFiles", (*Server).hideFile},
	"b2_delete_file_version": {"deleteFiles", (*Server).deleteVersion},
}

func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, name string) error {
	c, ok := calls[name]
	if !ok {
		return refusal{http.StatusNotFound, "not_found", "no such call: " + r.URL.Path}
	}
	var p params
	if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
		return refusal{http.StatusBadRequest, "bad_json", fmt.Sprintf("The request is not JSON: %v", err)}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.token(r.Header.Get("Authorization"), "account")
	if err != nil {
		return err
	}
	if !t.key.may(c.capability) {
		return errUnauthorized
	}
	result, err := c.do(s, r, t.key, p)
	if err != nil {
		return err
	}
	return reply(w, result)
}

// bucket returns the bucket of a request if the key allows it, and names with this prefix.
func (s *Server) bucket(k Key, id, name string) (*bucket, error) {
	b := s.state.withID(id)
	if !k.inside(b, name) {
		return nil, errUnauthorized
	}
	if b == nil {
		return nil, refusal{http.StatusBadRequest, "bad_bucket_id", "Bucket " + id + " does not exist"}
	}
	return b, nil
}

// changed calls the observer with the state of a name.
func (s *Server) changed(call string, b *bucket, name string) {
	if s.opts.Changed != nil {
		s.opts.Changed(Change{call, b.Name, name, b.versions[name]})
	}
}

func (s *Server) listBuckets(_ *http.Request, k Key, p params) (any, error) {
	b := s.state.withID(p.BucketID)
	if k.Buckets != nil && !slices.Contains(k.Buckets, p.BucketName) && (b == nil || !slices.Contains(k.Buckets, b.Name)) {
		return nil, errUnauthorized
	}
	found := []any{}
	for _, b := range s.state.buckets {
		if (p.BucketID == "" || p.BucketID == b.ID) && (p.BucketName == "" || p.BucketName == b.Name) {
			found = append(found, b.describe(k))
		}
	}
	return map[string]any{"buckets": found}, nil
}

func (b *bucket) describe(k Key) map[string]any {
	lock := map[string]any{"isClientAuthorizedToRead": false, "value": nil}
	if k.may("readBucketRetentions") {
		retention := map[string]any{"mode": nil, "period": nil}
		if b.Retain > 0 {
			retention = map[string]any{"mode": "governance", "period": map[string]any{"duration": max(1, int(b.Retain.Hours()/24)), "unit": "days"}}
		}
		lock = map[string]any{
			"isClientAuthorizedToRead": true,
			"value":                    map[string]any{"isFileLockEnabled": b.FileLock, "defaultRetention": retention},
		}
	}
	return map[string]any{
		"accountId": account, "bucketId": b.ID, "bucketName": b.Name, "bucketType": "allPrivate", "bucketInfo": map[string]string{},
		"corsRules": []any{}, "lifecycleRules": []any{}, "revision": 1, "fileLockConfiguration": lock,
	}
}

// uploadURL returns a URL and a token that works only there.
func (s *Server) uploadURL(r *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, k.Prefix)
	if err != nil {
		return nil, err
	}
	use := fmt.Sprintf("upload%d", len(s.tokens))
	return map[string]any{
		"bucketId":           b.ID,
		"uploadUrl":          fmt.Sprintf("%s/b2api/v3/b2_upload_file/%s/%s", base(r), b.ID, use),
		"authorizationToken": s.issue(k, use),
	}, nil
}

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
	files []any
	most  int
}

func (s *Server) newPage(p params) (*page, error) {
	most := p.MaxFileCount
	switch {
	case most < 0 || most > maxCount:
		return nil, badRequest("maxFileCount out of range: %d", most)
	case most == 0:
		most = defaultCount
	}
	if s.opts.PageSize > 0 {
		most = min(most, s.opts.PageSize)
	}
	return &page{[]any{}, most}, nil
}

// add adds a version, and reports whether there was room for it.
func (p *page) add(v Version) bool {
	if len(p.files) == p.most {
		return false
	}
	p.files = append(p.files, file(v))
	return true
}

// file is a version as the API shows it.
func file(v Version) map[string]any {
	f := map[string]any{
		"accountId": account, "action": v.Action, "bucketId": v.Bucket, "contentLength": len(v.Body),
		"contentSha1": nil, "contentType": v.ContentType, "fileId": v.ID, "fileName": v.Name, "uploadTimestamp": v.Timestamp,
	}
	if v.Action == "upload" {
		f["contentSha1"] = sum(v.Body)
	}
	return f
}

func (s *Server) copyFile(_ *http.Request, k Key, p params) (any, error) {
	b, v := s.state.version(p.SourceFileID)
	if v == nil || v.Action != "upload" {
		return nil, refusal{http.StatusNotFound, "not_found", "no such source file"}
	}
	if !k.may("readFiles") || !k.inside(b, v.Name) || !k.inside(b, p.FileName) {
		return nil, errUnauthorized
	}
	if err := checkName(p.FileName); err != nil {
		return nil, err
	}
	next := *v
	next.Name = p.FileName
	next = s.state.newVersion(b, next, time.Now())
	s.changed("b2_copy_file", b, next.Name)
	return file(next), nil
}

func (s *Server) hideFile(_ *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, p.FileName)
	if err != nil {
		return nil, err
	}
	switch versions := b.versions[p.FileName]; {
	case len(versions) == 0:
		return nil, refusal{http.StatusBadRequest, "no_such_file", "File not present: " + p.FileName}
	case versions[0].Action == "hide":
		return nil, refusal{http.StatusBadRequest, "already_hidden", "File already hidden: " + p.FileName}
	}
	v := s.state.newVersion(b, Version{Name: p.FileName, Action: "hide"}, time.Now())
	s.changed("b2_hide_file", b, v.Name)
	return file(v), nil
}

func (s *Server) deleteVersion(_ *http.Request, k Key, p params) (any, error) {
	b, v := s.state.version(p.FileID)
	if v == nil || v.Name != p.FileName {
		return nil, refusal{http.StatusBadRequest, "file_not_present", "File not present: " + p.FileName + " " + p.FileID}
	}
	if !k.inside(b, v.Name) {
		return nil, errUnauthorized
	}
	if b.FileLock && v.Action == "upload" && time.Now().Before(time.UnixMilli(v.Timestamp).Add(b.Retain)) {
		return nil, refusal{http.StatusForbidden, "access_denied", "the file version is retained"}
	}
	b.remove(*v)
	s.changed("b2_delete_file_version", b, p.FileName)
	return map[string]any{"fileId": p.FileID, "fileName": p.FileName}, nil
}

// download is b2_download_file_by_name, of a whole file.
func (s *Server) download(w http.ResponseWriter, r *http.Request) error {
	v, err := s.downloadable(r)
	if err != nil {
		return err
	}
	h := w.Header()
	h.Set("X-Bz-File-Id", v.ID)
	h.Set("X-Bz-File-Name", encode(v.Name))
	h.Set("X-Bz-Content-Sha1", sum(v.Body))
	h.Set("X-Bz-Upload-Timestamp", strconv.FormatInt(v.Timestamp, 10))
	h.Set("Content-Type", v.ContentType)
	h.Set("Content-Length", strconv.Itoa(len(v.Body)))
	_, _ = w.Write(v.Body)
	return nil
}

func (s *Server) downloadable(r *http.Request) (Version, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t, err := s.token(r.Header.Get("Authorization"), "account")
	if err != nil {
		return Version{}, err
	}
	name, encoded, _ := strings.Cut(strings.TrimPrefix(r.URL.EscapedPath(), "/file/"), "/")
	b := s.state.named(name)
	if name, err = decode(encoded); err != nil {
		return Version{}, err
	}
	if !t.key.may("readFiles") || !t.key.inside(b, name) {
		return Version{}, errUnauthorized
	}
	if b == nil || b.visible(name) == nil {
		return Version{}, refusal{http.StatusNotFound, "not_found", "File with such name does not exist."}
	}
	return *b.visible(name), nil
}

// upload is b2_upload_file. The URL's last element is the use that its token is
// good for.
func (s *Server) upload(w http.ResponseWriter, r *http.Request) error {
	done, k, b, err := s.startUpload(r)
	if err != nil {
		return err
	}
	defer done()
	v, err := readUpload(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !k.may("writeFiles") || !k.inside(b, v.Name) {
		return errUnauthorized
	}
	v = s.state.newVersion(b, v, time.Now())
	s.changed("b2_upload_file", b, v.Name)
	return reply(w, file(v))
}

// startUpload takes the URL for one upload, until done.
func (s *Server) startUpload(r *http.Request) (done func(), k Key, b *bucket, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	elements := strings.Split(r.URL.Path, "/") // "", b2api, v3, b2_upload_file, bucket, use
	if len(elements) != 6 {
		return nil, k, nil, badRequest("not an upload URL")
	}
	name := r.Header.Get("Authorization")
	if t := s.tokens[name]; t != nil && t.spent {
		return nil, k, nil, refusal{http.StatusServiceUnavailable, "service_unavailable", "no tomes available"}
	}
	t, err := s.token(name, elements[5])
	if err != nil {
		return nil, k, nil, err
	}
	if b = s.state.withID(elements[4]); b == nil {
		return nil, k, nil, refusal{http.StatusBadRequest, "bad_bucket_id", "Bucket does not exist"}
	}
	if t.busy {
		return nil, k, nil, refusal{http.StatusBadRequest, "auth_token_limit", fmt.Sprintf("more than one upload using auth token %s", name)}
	}
	t.busy = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		t.busy = false
	}, t.key, b, nil
}

func readUpload(r *http.Request) (Version, error) {
	name, err := decode(r.Header.Get("X-Bz-File-Name"))
	if err != nil {
		return Version{}, err
	}
	if err := checkName(name); err != nil {
		return Version{}, err
	}
	if r.ContentLength < 0 {
		return Version{}, refusal{http.StatusLengthRequired, "length_required", "Missing header: Content-Length"}
	}
	v := Version{Name: name, Action: "upload", ContentType: r.Header.Get("Content-Type")}
	if v.ContentType == "" {
		return Version{}, badRequest("Missing header: Content-Type")
	}
	v.Body, err = io.ReadAll(r.Body)
	if err != nil {
		return Version{}, badRequest("the upload was cut off")
	}
	if sum(v.Body) != r.Header.Get("X-Bz-Content-Sha1") {
		return Version{}, badRequest("Sha1 did not match data received")
	}
	return v, nil
}

func sum(body []byte) string {
	sum := sha1.Sum(body)
	return hex.EncodeToString(sum[:])
}

// checkName checks the rules of "File Names".
func checkName(name string) error {
	switch {
	case name == "" || len(name) > 1024 || !utf8.ValidString(name):
		return badRequest("File names must be 1 to 1024 bytes of UTF-8")
	case strings.HasPrefix(name, "/") || strings.HasSuffix(name, "/") || strings.Contains(name, "//"):
		return badRequest("File names must not start or end with '/', nor contain '//'")
	case strings.ContainsFunc(name, func(r rune) bool { return r < 32 || r == 127 || r == '\\' }):
		return badRequest("File names must not contain control characters, DEL or backslashes")
	}
	for part := range strings.SplitSeq(name, "/") {
		if len(part) > 250 {
			return badRequest("File name segments must not be longer than 250 bytes")
		}
	}
	return nil
}

// decode reads a name as it is written in URLs and headers: a plus sign is a
// space there.
func decode(encoded string) (string, error) {
	name, err := url.QueryUnescape(encoded)
	if err != nil {
		return "", badRequest("Bad percent-encoding of %q", encoded)
	}
	return name, nil
}

func encode(name string) string { return strings.ReplaceAll(url.QueryEscape(name), "%2F", "/") }
