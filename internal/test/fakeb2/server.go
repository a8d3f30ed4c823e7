package fakeb2

import (
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
	// File keeps what is stored, if it isn't "": a server that is started with
	// it again goes on where the last one ended, however that did.
	File string
	// PageSize is how many entries a page of a listing has at most, if not 0,
	// whatever was asked for.
	PageSize int
	// TokenUses is how many requests a token is good for, if not 0.
	TokenUses int
	// Offset is by how much the server's clock is wrong.
	Offset time.Duration
	// Changed is called whenever the versions of a name have changed, before any
	// other request can see that. It must not call the server.
	Changed func(Change)
}

// Change is what a request has made of a name.
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

// Server is the API, the storage and the download server in one. Its URLs are
// made of the Host of each request, so that a proxy in front of it sees all.
type Server struct {
	opts Options

	mu      sync.Mutex
	state   *state
	tokens  tokens
	log     []Request
	failing []failure
	before  func(call string, r *http.Request)
}

// Request is one that was answered.
type Request struct {
	Call   string // "b2_upload_file", "b2_download_file_by_name"
	Status int
}

// New starts a server, with what is in its file.
func New(opts Options) (*Server, error) {
	st, err := load(opts.File)
	if err != nil {
		return nil, err
	}
	return &Server{opts: opts, state: st, tokens: newTokens()}, nil
}

// AddKey makes one more application key.
func (s *Server) AddKey(k Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.opts.Keys = append(s.opts.Keys, k)
}

// AddBucket makes a bucket, if there is none of that name.
func (s *Server) AddBucket(b Bucket) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.state.named(b.Name) != nil {
		return nil
	}
	return s.state.addBucket(b)
}

// DeleteBucket removes a bucket with all that is in it.
func (s *Server) DeleteBucket(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := s.state.named(name)
	if b == nil {
		return nil
	}
	return s.state.do(entry{DeleteBucket: b.ID})
}

// Versions are all that a bucket has, by name and newest first.
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

// ExpireTokens makes the next use of every token that was given out until now
// answered with 401 expired_auth_token.
func (s *Server) ExpireTokens() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.tokens.expire()
}

// Fail has the next n requests of a call answered with an error, before anything
// else is looked at.
func (s *Server) Fail(call string, n, status int, code string) {
	s.FailSaying(call, n, status, code, "as the test wants it")
}

// FailSaying has them answered with this message.
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

// Before has f called before each request is looked at, without a lock: it may
// wait, or call the server.
func (s *Server) Before(f func(call string, r *http.Request)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.before = f
}

// Uploading says whether an upload is under way.
func (s *Server) Uploading() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.tokens.busy) > 0
}

// TakeLog gives the requests since the last call of it.
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
	w.Header().Set("Date", s.now().UTC().Format(http.TimeFormat))
	status := s.answer(w, r, call)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log = append(s.log, Request{call, status})
}

// callOf is the name of the call that a path is for, "" if it is for none.
func callOf(path string) string {
	if strings.HasPrefix(path, "/file/") {
		return "b2_download_file_by_name"
	}
	if versionOf(path) == "" {
		return ""
	}
	return strings.Split(path, "/")[3]
}

// versionOf is the version of the API that a path is for, "" if there is none of it.
func versionOf(path string) string {
	if m := versioned.FindStringSubmatch(path); m != nil {
		return m[1]
	}
	return ""
}

var versioned = regexp.MustCompile(`^/b2api/v([34])/`)

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

// failed is the error that a test has asked for.
func (s *Server) failed(call string, r *http.Request) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	i := slices.IndexFunc(s.failing, func(f failure) bool { return f.call == call && f.times > 0 })
	if i < 0 {
		return nil
	}
	s.failing[i].times--
	if call == "b2_upload_file" && s.failing[i].with.status >= 500 {
		s.tokens.spend(r.Header.Get("Authorization"))
	}
	return s.failing[i].with
}

func (s *Server) now() time.Time { return time.Now().Add(s.opts.Offset) }

// base is the URL under which a request has reached the server.
func base(r *http.Request) string {
	scheme := "http"
	if r.TLS != nil {
		scheme = "https"
	}
	return fmt.Sprintf("%s://%s", scheme, r.Host)
}
