package b2_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

// deed is what a test does with an object.
type deed = func(context.Context, *b2.Store, store.Object) error

func remove(ctx context.Context, s *b2.Store, o store.Object) error { return s.Delete(ctx, o.Key) }

func overwrite(ctx context.Context, s *b2.Store, o store.Object) error {
	return assert.Err(s.Put(ctx, o.Key, []byte("overwritten"), store.PutOptions{}))
}

func replaceBy(body string) deed {
	return func(ctx context.Context, s *b2.Store, o store.Object) error {
		return assert.Err(s.Put(ctx, o.Key, []byte(body), store.PutOptions{Replaces: o.ETag}))
	}
}

// method is a method of a store, and the number of its requests in a session.
type method struct {
	name     string
	requests int
	do       deed
}

var each = []method{
	{"put", 1, func(ctx context.Context, s *b2.Store, _ store.Object) error {
		return assert.Err(s.Put(ctx, "another", []byte("x"), store.PutOptions{}))
	}},
	{"put again", 2, overwrite},
	{"replace", 3, replaceBy("x")},
	{"get", 1, func(ctx context.Context, s *b2.Store, o store.Object) error {
		_, _, err := s.Get(ctx, o.Key, 100)
		return err
	}},
	{"list", 1, func(ctx context.Context, s *b2.Store, o store.Object) error {
		return assert.Err(s.List(ctx, o.Key, ""))
	}},
	{"delete", 2, remove},
	{"describe", 1, func(ctx context.Context, s *b2.Store, _ store.Object) error {
		return assert.Err(s.Describe(ctx))
	}},
}

// TestRequests: each method sends its number of requests. Those that begin a session are sent once.
func TestRequests(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	assert.Equal(t, f.calls(), nil, "opening a store makes requests")
	put(t, s, "k", "")
	first := []string{"b2_authorize_account", "b2_list_buckets", "b2_get_upload_url", "b2_upload_file"}
	assert.Equal(t, f.calls(), first, "the first put")
	put(t, s, "k2", "another")
	for _, m := range each {
		o := put(t, s, "k", "")
		f.TakeLog()
		assert.Is(t, m.do(t.Context(), s, o), nil)
		assert.Equal(t, len(f.TakeLog()), m.requests, m.name)
	}
	for _, opts := range []store.PutOptions{{IfAbsent: true}, {IfMatch: "x"}} {
		assert.Is(t, assert.Err(s.Put(t.Context(), "k", nil, opts)), store.ErrConditionUnsupported)
	}
	assert.Equal(t, f.calls(), nil, "conditional puts")
}

// eachRequest runs a test for each request of each method, on a store that has put an object.
func eachRequest(t *testing.T, methods []method, test func(t *testing.T, m method, at int, f *fake, s *b2.Store, o store.Object)) {
	for _, m := range methods {
		for at := range m.requests {
			t.Run(fmt.Sprintf("%s, request %d", m.name, at), func(t *testing.T) {
				f, s, o := stored(t, "old")
				if m.name == "first request" {
					s = f.open(t)
				}
				test(t, m, at, f, s, o)
			})
		}
	}
}

// TestExpiredTokens: a method succeeds although all tokens expire before one of its requests.
func TestExpiredTokens(t *testing.T) {
	eachRequest(t, each, func(t *testing.T, m method, at int, f *fake, s *b2.Store, o store.Object) {
		var n atomic.Int32
		f.Before(func(string, *http.Request) {
			if int(n.Add(1)) == at+1 {
				f.ExpireTokens()
			}
		})
		f.TakeLog()
		assert.OK(t, m.do(t.Context(), s, o))
		log := f.TakeLog()
		expired := slices.ContainsFunc(log, func(r fakeb2.Request) bool { return r.Status == http.StatusUnauthorized })
		again := slices.ContainsFunc(log, func(r fakeb2.Request) bool { return r.Call == "b2_authorize_account" })
		assert.That(t, expired && again, "nothing had expired: %v", log)
	})
}

// TestExpiredTwice: if the server refuses every token, or every token but those that begin a session, a method fails after
// a few requests.
func TestExpiredTwice(t *testing.T) {
	for _, spared := range []string{"", "b2_list_buckets"} {
		for _, m := range each {
			f, s, o := stored(t, "old")
			var n atomic.Int32
			f.Before(func(call string, _ *http.Request) {
				if call != spared && n.Add(1) < 50 {
					f.ExpireTokens()
				}
			})
			f.TakeLog()
			err := m.do(t.Context(), s, o)
			log := f.TakeLog()
			survives := m.name == "put again" || m.name == "describe" && spared != ""
			assert.That(t, survives || err != nil && !store.Permanent(err), "%s: %v: %v", m.name, err, log)
			assert.That(t, len(log) <= 12, "%s: %v", m.name, log)
		}
	}
}

// TestUploadURLs: after an error of the server, the next put uses another upload URL.
func TestUploadURLs(t *testing.T) {
	for _, status := range []int{500, 503, 408, 429} {
		f, s, _ := stored(t, "1")
		f.Fail("b2_upload_file", 1, status, "as_it_is")
		f.TakeLog()
		_, err := s.Put(t.Context(), "k", []byte("2"), store.PutOptions{})
		assert.That(t, err != nil && !store.Permanent(err), "%d: %v", status, err)
		assert.Equal(t, f.calls(), []string{"b2_upload_file"}, "%d: the driver repeats", status)
		put(t, s, "k", "3")
		assert.Equal(t, f.calls()[:2], []string{"b2_get_upload_url", "b2_upload_file"}, "%d", status)
		f.has(t, "3")
	}
}

// TestHanging: if the server doesn't answer a request, the method returns when its context ends, and
// closes the connection.
func TestHanging(t *testing.T) {
	methods := append(each[:len(each):len(each)], method{"first request", 1, each[4].do})
	eachRequest(t, methods, func(t *testing.T, m method, at int, f *fake, s *b2.Store, o store.Object) {
		ctx, cancel := context.WithCancel(t.Context())
		closed := make(chan struct{})
		var n atomic.Int32
		f.Before(func(_ string, r *http.Request) {
			if int(n.Add(1)) != at+1 {
				return
			}
			_, _ = io.Copy(io.Discard, r.Body) // only after the body can the server see a closed connection
			cancel()
			<-r.Context().Done()
			close(closed)
		})
		err := m.do(ctx, s, o)
		<-closed
		want := context.Canceled
		if m.requests > 1 && at == m.requests-1 && m.name != "delete" {
			want = nil // the last request only removes the version below the put
		}
		assert.Is(t, err, want)
		err = m.do(t.Context(), s, o)
		assert.That(t, err == nil || errors.Is(err, store.ErrPrecondition), "afterwards: %v", err)
	})
}

// TestWaitingForASession: a request that waits for another request's authorization heeds its own context.
func TestWaitingForASession(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	asked, answer := make(chan struct{}), make(chan struct{})
	f.Before(func(call string, _ *http.Request) {
		if call == "b2_authorize_account" {
			close(asked)
			<-answer
		}
	})
	first, second := make(chan error), make(chan error)
	list := func(ctx context.Context, err chan error) { err <- assert.Err(s.List(ctx, "", "")) }
	go list(t.Context(), first)
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	waits := &waited{Context: ctx, done: make(chan struct{})}
	go list(waits, second)
	<-waits.done
	cancel()
	assert.Is(t, <-second, context.Canceled)
	close(answer)
	assert.Is(t, <-first, nil)
}

// waited is a context that signals when a goroutine waits for its end.
type waited struct {
	context.Context
	once sync.Once
	done chan struct{}
}

func (w *waited) Done() <-chan struct{} {
	w.once.Do(func() { close(w.done) })
	return w.Context.Done()
}

// TestHangingBody: a method returns when its context ends in the middle of an answer.
func TestHangingBody(t *testing.T) {
	f, _, _ := stored(t, "the body")
	for _, m := range slices.DeleteFunc(slices.Clone(each), func(m method) bool { return m.requests > 1 }) {
		ctx, cancel := context.WithCancel(t.Context())
		var hang atomic.Bool
		s := f.behind(t, func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
			if !hang.Load() {
				w.WriteHeader(answer.Code)
				_, _ = w.Write(answer.Body.Bytes())
				return
			}
			w.Header().Set("Content-Length", strconv.Itoa(answer.Body.Len()))
			_, _ = w.Write(answer.Body.Bytes()[:answer.Body.Len()/2])
			w.(http.Flusher).Flush()
			cancel()
			<-r.Context().Done()
		})
		put(t, s, "other", "") // begins the session
		hang.Store(true)
		assert.Is(t, m.do(ctx, s, store.Object{Key: "k"}), context.Canceled, "%s", m.name)
		cancel()
	}
}

// TestManyExpiredURLs: a put succeeds although all idle upload URLs have expired.
func TestManyExpiredURLs(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	const n = 5
	var at sync.WaitGroup // makes the puts concurrent, so that each has an upload URL of its own
	at.Add(n)
	f.Before(func(call string, _ *http.Request) {
		if call == "b2_upload_file" {
			at.Done()
			at.Wait()
		}
	})
	var puts sync.WaitGroup
	for i := range n {
		puts.Go(func() {
			assert.Is(t, assert.Err(s.Put(t.Context(), fmt.Sprint(i), nil, store.PutOptions{})), nil)
		})
	}
	puts.Wait()
	f.Before(nil)
	assert.Equal(t, len(f.calls()), 2+2*n, "calls")
	f.ExpireTokens()
	put(t, s, "k", "")
}

// TestVersionsEnd: a listing of versions without an end is an error.
func TestVersionsEnd(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	var listings atomic.Int64
	s := f.behind(t, func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
		page := map[string]any{}
		assert.Is(t, json.Unmarshal(answer.Body.Bytes(), &page), nil)
		if strings.Contains(r.URL.Path, "/b2_list_file_versions") {
			page["nextFileName"], page["nextFileId"] = prefix+"index/k", "an-id"
			if listings.Add(1) > 300 {
				answer.Code = http.StatusTeapot
			}
		}
		w.WriteHeader(answer.Code)
		_ = json.NewEncoder(w).Encode(page)
	})
	assert.OK(t, assert.Err(s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{})))
	assert.Says(t, s.Delete(t.Context(), "index/k"), store.ErrListing, "index/k")
}
