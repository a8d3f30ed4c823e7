// Package fakeb2 is Backblaze's native API, for tests: the calls that a lock needs, over a store in memory, as
// they are documented.
//
// It follows these pages of https://www.backblaze.com/apidocs and
// https://www.backblaze.com/docs:
//
//   - b2_authorize_account, v4, "Native API Versions": the answer's apiInfo.storageApi
//     with the key's capabilities, its buckets and its name prefix; tokens last 24 hours.
//   - b2_list_buckets: a key that is restricted to a bucket has to name it;
//     fileLockConfiguration is shown to keys with readBucketRetentions.
//   - b2_get_upload_url, b2_upload_file, "Upload Files with the Native API": a URL
//     goes with its token and takes one upload at a time (400 auth_token_limit);
//     SHA-1 and length are checked; a URL that has answered 503 answers nothing else.
//   - b2_list_file_names: byte order, one entry a name, hidden names left out,
//     prefix, startFileName, nextFileName, maxFileCount up to 10,000.
//   - b2_list_file_versions: newest version first, hide markers included,
//     startFileId, nextFileId.
//   - b2_download_file_by_name: 404 for what is hidden or isn't there.
//   - b2_copy_file (whole files), b2_hide_file (400 no_such_file, 400 already_hidden),
//     b2_delete_file_version (400 file_not_present; 403 access_denied while Object Lock
//     retains it).
//   - "File Names" and "Native API String Encoding": which names there are, and how
//     they are written in URLs and headers.
//   - "Native API Error Handling", "Application Key Capabilities": the JSON of an
//     error; 401 unauthorized for what a key has no right to, 401 bad_auth_token and
//     expired_auth_token for a token that is none or no longer one.
//
// A request that was answered is seen by all that come after it. No two versions
// of a name have the same timestamp.
//
// Left out is what store/b2 doesn't use: all other calls (keys are given to New, buckets
// to [Server.AddBucket]), folders, parts of files, their info, lifecycle rules, all caps
// but by [Server.Fail], and every version of the API but the third and the fourth, which
// differ in b2_authorize_account alone.
package fakeb2

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// Options of a server. The zero value is a server without keys and buckets.
type Options struct {
	Keys []Key
	// PageSize is the most entries of a listing's page, if not 0, whatever was requested.
	PageSize int
	// TokenUses is the number of requests that a token works for, if not 0.
	TokenUses int
	// Changed is called whenever the versions of a name have changed, before any
	// other request can see that. It must not call the server.
	Changed func(Change)
}

// Change is the effect of a request on a name.
type Change struct {
	Call   string // "b2_upload_file"
	Bucket string
	Name   string
	// Versions are all that there are now, newest first.
	Versions []Version
}

// Visible is the version that readers see, nil if they see none.
func (c Change) Visible() *Version {
	if len(c.Versions) == 0 || c.Versions[0].Action != "upload" {
		return nil
	}
	return &c.Versions[0]
}

// Server is the API, the storage and the download server in one. Its URLs have the Host of each request, so a
// proxy in front of it sees all requests.
type Server struct {
	opts Options

	mu      sync.Mutex
	state   state
	tokens  map[string]*token
	log     []Request
	failing []failure
	before  func(call string, r *http.Request)
}

// Request is an answered request.
type Request struct {
	Call   string // "b2_upload_file", "b2_download_file_by_name"
	Status int
}

// New returns a server without buckets.
func New(opts Options) *Server { return &Server{opts: opts, tokens: map[string]*token{}} }

// AddKey makes one more application key.
func (s *Server) AddKey(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Keys = append(s.opts.Keys, k)
}

// AddBucket makes a bucket.
func (s *Server) AddBucket(b Bucket) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.addBucket(b)
}

// DeleteBucket removes a bucket with all its versions.
func (s *Server) DeleteBucket(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.state.buckets = slices.DeleteFunc(s.state.buckets, func(b *bucket) bool { return b.Name == name })
}

// Versions returns all versions of a bucket, by name and newest first.
func (s *Server) Versions(bucket string) []Version {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.state.named(bucket)
	if b == nil {
		return nil
	}
	var all []Version
	for _, name := range b.names {
		all = append(all, b.versions[name]...)
	}
	return all
}

// ExpireTokens expires all present tokens: their next use is answered with 401 expired_auth_token.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.tokens {
		t.expired = true
	}
}

// Fail makes the server answer the next n requests of a call with an error, before it looks at
// anything else.
func (s *Server) Fail(call string, n, status int, code string) {
	s.FailSaying(call, n, status, code, "as the test wants it")
}

// FailSaying is Fail with this message.
func (s *Server) FailSaying(call string, n, status int, code, message string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.failing = append(s.failing, failure{call, n, refusal{status, code, message}})
}

type failure struct {
	call  string
	times int
	with  refusal
}

// Before makes the server call f before it looks at a request, without a lock: f can wait, or
// call the server.
func (s *Server) Before(f func(call string, r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// TakeLog returns the requests since its last call.
func (s *Server) TakeLog() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	log := s.log
	s.log = nil
	return log
}

// ServeHTTP answers any of the servers' requests.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	call := callOf(r.URL.Path)
	s.mu.Lock()
	before := s.before
	s.mu.Unlock()
	if before != nil {
		before(call, r)
	}
	w.Header().Set("Date", time.Now().UTC().Format(http.TimeFormat))
	status := s.answer(w, r, call)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, Request{call, status})
}

// callOf returns the call of a path, or "".
func callOf(path string) string {
	if strings.HasPrefix(path, "/file/") {
		return "b2_download_file_by_name"
	}
	if m := versioned.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}

var versioned = regexp.MustCompile(`^/b2api/v[34]/([^/]+)`)

func (s *Server) answer(w http.ResponseWriter, r *http.Request, call string) int {
	err := s.failed(call, r)
	if err == nil {
		switch call {
		case "b2_upload_file":
			err = s.upload(w, r)
		case "b2_download_file_by_name":
			err = s.download(w, r)
		case "b2_authorize_account":
			err = s.authorize(w, r)
		default:
			err = s.serveCall(w, r, call)
		}
	}
	if err == nil {
		return http.StatusOK
	}
	return refuse(w, err)
}

// failed returns the error that a test has set.
func (s *Server) failed(call string, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.failing, func(f failure) bool { return f.call == call && f.times > 0 })
	if i < 0 {
		return nil
	}
	s.failing[i].times--
	if t := s.tokens[r.Header.Get("Authorization")]; t != nil && call == "b2_upload_file" && s.failing[i].with.status >= 500 {
		t.spent = true
	}
	return s.failing[i].with
}

// base returns the URL under which a request has reached the server.
func base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil || r.Header.Get("X-Forwarded-Proto") == "https" {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s", scheme, r.Host)
}

// refusal is an error in the API's form.
type refusal struct {
	status  int
	code    string
	message string
}

func (e refusal) Error() string { return fmt.Sprintf("%d %s: %s", e.status, e.code, e.message) }

func badRequest(format string, args ...any) error {
	return refusal{http.StatusBadRequest, "bad_request", fmt.Sprintf(format, args...)}
}

var errUnauthorized = refusal{http.StatusUnauthorized, "unauthorized", "not authorized for this call with these parameters"}

// refuse answers with an error.
func refuse(w http.ResponseWriter, err error) int {
	var e refusal
	if !errors.As(err, &e) {
		e = refusal{http.StatusInternalServerError, "internal_error", err.Error()}
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	w.WriteHeader(e.status)
	_ = json.NewEncoder(w).Encode(map[string]any{"status": e.status, "code": e.code, "message": e.message})
	return e.status
}

// reply answers with a result.
func reply(w http.ResponseWriter, v any) error {
	body, err := json.Marshal(v)
	if err != nil {
		return err
	}
	w.Header().Set("Content-Type", "application/json;charset=utf-8")
	_, _ = w.Write(body)
	return nil
}
