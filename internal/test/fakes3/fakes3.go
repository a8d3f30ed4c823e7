// Package fakes3 is an S3 server for tests, as far as the lock's requests go: one bucket,
// path-style, on top of a store in memory. It ignores signatures. Deviations of real servers
// are behaviours of internal/test/proxy, which stands before it.
package fakes3

import (
	"crypto/md5"
	"encoding/base64"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"time"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// Server answers as S3 does.
type Server struct {
	bucket  string
	objects *memory.Store
}

// New returns a server with an empty bucket.
func New(bucket string) *Server { return NewAt(bucket, time.Now) }

// NewAt is New with a clock that stamps the objects.
func NewAt(bucket string, now func() time.Time) *Server {
	return &Server{bucket, memory.New(memory.Options{Now: now})}
}

// Objects returns the store of the bucket.
func (s *Server) Objects() store.Store { return s.objects }

// maxBody is more than any object of a test.
const maxBody = 1 << 20

func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody))
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	bucket, key, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, "/"), "/")
	query := r.URL.Query()
	switch {
	case bucket != s.bucket:
		refuse(w, http.StatusNotFound, "NoSuchBucket")
	case key == "" && query.Has("list-type"):
		s.list(w, r)
	case key == "" && query.Has("versioning"):
		fmt.Fprint(w, `<VersioningConfiguration/>`)
	case key == "" && r.Method == http.MethodPost && query.Has("delete"):
		s.deleteAll(w, r, body)
	case key == "":
		refuse(w, http.StatusNotFound, "ObjectLockConfigurationNotFoundError")
	case r.Method == http.MethodPut:
		s.put(w, r, key, body)
	case r.Method == http.MethodGet:
		s.get(w, r, key)
	case r.Method == http.MethodDelete && r.Header.Get("If-Match") != "":
		refuse(w, http.StatusNotImplemented, "NotImplemented")
	case r.Method == http.MethodDelete:
		answer(w, s.objects.Delete(r.Context(), key), func() { w.WriteHeader(http.StatusNoContent) })
	default:
		refuse(w, http.StatusMethodNotAllowed, "MethodNotAllowed")
	}
}

func (s *Server) put(w http.ResponseWriter, r *http.Request, key string, body []byte) {
	if want := r.Header.Get("Content-Md5"); want != "" {
		if sum := md5.Sum(body); want != base64.StdEncoding.EncodeToString(sum[:]) {
			refuse(w, http.StatusBadRequest, "BadDigest")
			return
		}
	}
	o, err := s.objects.Put(r.Context(), key, body, store.PutOptions{
		IfAbsent: r.Header.Get("If-None-Match") == "*", IfMatch: strings.Trim(r.Header.Get("If-Match"), `"`),
	})
	answer(w, err, func() { w.Header().Set("ETag", `"`+o.ETag+`"`) })
}

func (s *Server) get(w http.ResponseWriter, r *http.Request, key string) {
	body, o, err := s.objects.Get(r.Context(), key, maxBody)
	answer(w, err, func() {
		w.Header().Set("ETag", `"`+o.ETag+`"`)
		w.Header().Set("Last-Modified", o.ModTime.UTC().Format(http.TimeFormat))
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(body)
	})
}

// listing is a page of ListObjectsV2.
type listing struct {
	XMLName                         xml.Name `xml:"ListBucketResult"`
	Name, Prefix                    string
	MaxKeys                         int
	IsTruncated                     bool
	NextContinuationToken, Contents any
}

type object struct {
	Key, LastModified, ETag string
	Size                    int64
}

func (s *Server) list(w http.ResponseWriter, r *http.Request) {
	query := r.URL.Query()
	after := query.Get("continuation-token")
	if after == "" {
		after = query.Get("start-after")
	}
	page, err := s.objects.List(r.Context(), query.Get("prefix"), after)
	answer(w, err, func() {
		all := make([]object, 0, len(page.Objects))
		for _, o := range page.Objects {
			all = append(all, object{o.Key, o.ModTime.UTC().Format(millis), `"` + o.ETag + `"`, o.Size})
		}
		l := listing{Name: s.bucket, Prefix: query.Get("prefix"), MaxKeys: 1000, Contents: all}
		if page.Next != "" {
			l.IsTruncated, l.NextContinuationToken = true, page.Next
		}
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(l)
	})
}

const millis = "2006-01-02T15:04:05.000Z"

// answer writes the refusal for an error, or calls done if there is none.
func answer(w http.ResponseWriter, err error, done func()) {
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	switch {
	case err == nil:
		done()
	case errors.Is(err, store.ErrNotFound):
		refuse(w, http.StatusNotFound, "NoSuchKey")
	case errors.Is(err, store.ErrPrecondition):
		refuse(w, http.StatusPreconditionFailed, "PreconditionFailed")
	default:
		refuse(w, http.StatusBadRequest, "InvalidURI")
	}
}

func refuse(w http.ResponseWriter, status int, code string) {
	w.Header().Set("Content-Type", "application/xml")
	w.WriteHeader(status)
	fmt.Fprintf(w, "<Error><Code>%s</Code><Message>no</Message></Error>", code)
}

// deletion is the body of DeleteObjects, and result its answer.
type (
	deletion struct {
		Object []struct{ Key string }
		Quiet  bool
	}
	result struct {
		XMLName xml.Name `xml:"DeleteResult"`
		Deleted []named
	}
	named struct{ Key string }
)

// deleteAll insists on Content-MD5, as many servers do.
func (s *Server) deleteAll(w http.ResponseWriter, r *http.Request, body []byte) {
	sum := md5.Sum(body)
	switch want := r.Header.Get("Content-Md5"); want {
	case "":
		refuse(w, http.StatusBadRequest, "MissingContentMD5")
		return
	case base64.StdEncoding.EncodeToString(sum[:]):
	default:
		refuse(w, http.StatusBadRequest, "BadDigest")
		return
	}
	var d deletion
	if xml.Unmarshal(body, &d) != nil || len(d.Object) == 0 || len(d.Object) > store.MaxBatch {
		refuse(w, http.StatusBadRequest, "MalformedXML")
		return
	}
	var res result
	for _, o := range d.Object {
		if s.objects.Delete(r.Context(), o.Key) == nil && !d.Quiet {
			res.Deleted = append(res.Deleted, named{o.Key})
		}
	}
	answer(w, nil, func() {
		w.Header().Set("Content-Type", "application/xml")
		_ = xml.NewEncoder(w).Encode(res)
	})
}
