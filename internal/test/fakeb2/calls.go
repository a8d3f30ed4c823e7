package fakeb2

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
)

// params are those of all calls.
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
	Delimiter     string `json:"delimiter"`
}

// calls are the calls that take an account's token and answer with JSON, with the capability
// that each needs. They run under the server's lock.
var calls = map[string]struct {
	capability string
	do         func(*Server, *http.Request, Key, params) (any, error)
}{
	"b2_list_buckets":        {"listBuckets", (*Server).listBuckets},
	"b2_create_bucket":       {"writeBuckets", (*Server).createBucket},
	"b2_delete_bucket":       {"deleteBuckets", (*Server).deleteBucket},
	"b2_get_upload_url":      {"writeFiles", (*Server).uploadURL},
	"b2_list_file_names":     {"listFiles", (*Server).listNames},
	"b2_list_file_versions":  {"listFiles", (*Server).listVersions},
	"b2_get_file_info":       {"readFiles", (*Server).fileInfo},
	"b2_copy_file":           {"writeFiles", (*Server).copyFile},
	"b2_hide_file":           {"writeFiles", (*Server).hideFile},
	"b2_delete_file_version": {"deleteFiles", (*Server).deleteVersion},
}

func (s *Server) serveCall(w http.ResponseWriter, r *http.Request, name string) error {
	c, ok := calls[name]
	if !ok {
		return refusal{http.StatusNotFound, "not_found", "no such call: " + r.URL.Path}
	}
	p, err := parse(r)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	k, err := s.holder(r.Header.Get("Authorization"), "account")
	if err != nil {
		return err
	}
	if !k.may(c.capability) {
		return errUnauthorized
	}
	result, err := c.do(s, r, k, p)
	if err != nil {
		return err
	}
	return reply(w, result)
}

// parse reads parameters from a JSON body, or from the query of a GET.
func parse(r *http.Request) (p params, err error) {
	if r.Method == http.MethodPost {
		if err := json.NewDecoder(r.Body).Decode(&p); err != nil {
			return p, refusal{http.StatusBadRequest, "bad_json", fmt.Sprintf("The request is not JSON: %v", err)}
		}
		return p, nil
	}
	q := r.URL.Query()
	for name, field := range map[string]*string{
		"accountId": &p.AccountID, "bucketId": &p.BucketID, "bucketName": &p.BucketName,
		"fileName": &p.FileName, "fileId": &p.FileID, "sourceFileId": &p.SourceFileID,
		"startFileName": &p.StartFileName, "startFileId": &p.StartFileID, "prefix": &p.Prefix, "delimiter": &p.Delimiter,
	} {
		*field = q.Get(name)
	}
	if n := q.Get("maxFileCount"); n != "" {
		if p.MaxFileCount, err = strconv.Atoi(n); err != nil {
			return p, badRequest("maxFileCount is not a number")
		}
	}
	return p, nil
}

// bucket returns the bucket of a request, if the key is for it and for names that begin so.
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
