package proxy

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
)

// Request is one request to the store.
type Request struct {
	// Op is "put", "get", "head", "delete", "list", "delete all" (DeleteObjects) or "other" of
	// S3, or the name of a call of B2's: "b2_upload_file".
	Op string
	// Key of the object, or the prefix of a listing.
	Key    string
	Method string
	Query  url.Values
	Header http.Header
	Body   []byte
	// N counts the requests with the same Op and Key from 1.
	N int
}

// maxBody is the limit of a body: what passes here is small.
const maxBody = 64 << 20

// read reads a request whole.
func (p *Proxy) read(r *http.Request) (Request, error) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		return Request{}, err
	}
	q := Request{Method: r.Method, Query: r.URL.Query(), Header: r.Header, Body: body}
	if speaksB2(r.URL) {
		q.Op, q.Key = nameB2(r, body)
	} else {
		q.Op, q.Key = nameS3(r)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	count := q.Op + " " + q.Key
	p.counts[count]++
	q.N = p.counts[count]
	return q, nil
}

// nameS3 returns the operation and the key of a request with a path-style URL.
func nameS3(r *http.Request) (op, key string) {
	_, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	switch query := r.URL.Query(); {
	case key == "" && r.Method == http.MethodGet && (query.Has("list-type") || query.Has("prefix")):
		return "list", query.Get("prefix")
	case key == "" && r.Method == http.MethodPost && query.Has("delete"):
		return "delete all", ""
	case key == "":
		return "other", ""
	case query.Has("versionId") || query.Has("uploads") || query.Has("uploadId"):
		return "other", key
	default:
		op, ok := map[string]string{
			http.MethodPut: "put", http.MethodGet: "get", http.MethodHead: "head", http.MethodDelete: "delete",
		}[r.Method]
		if !ok {
			op = "other"
		}
		return op, key
	}
}

func speaksB2(u *url.URL) bool {
	return strings.HasPrefix(u.Path, "/b2api/") || strings.HasPrefix(u.Path, "/file/")
}

// nameB2 returns the call and the key of a request of B2's native API.
func nameB2(r *http.Request, body []byte) (op, key string) {
	parts := strings.SplitN(strings.TrimPrefix(r.URL.Path, "/"), "/", 4)
	if parts[0] == "file" {
		_, key, _ = strings.Cut(strings.TrimPrefix(r.URL.Path, "/file/"), "/")
		return "b2_download_file_by_name", key
	}
	if len(parts) > 2 {
		op = parts[2]
	}
	if name := r.Header.Get("X-Bz-File-Name"); name != "" {
		key, _ = url.PathUnescape(name)
		return op, key
	}
	var call struct{ FileName, Prefix string }
	_ = json.Unmarshal(body, &call)
	return op, call.FileName + call.Prefix
}

// String is the request for messages.
func (r Request) String() string { return fmt.Sprintf("%s %q #%d", r.Op, r.Key, r.N) }
