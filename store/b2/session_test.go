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

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

// method is a method with the number of its requests once a session is set up.
type method struct {
	name     string
	requests int
	do       func(context.Context, *b2.Store, store.Object) error
}

var each = []method{
	{"put", 1, func(ctx context.Context, s *b2.Store, _ store.Object) error {
		_, err := s.Put(ctx, "another", []byte("x"), store.PutOptions{})
		return err
	}},
	{"put again", 2, func(ctx context.Context, s *b2.Store, o store.Object) error {
		_, err := s.Put(ctx, o.Key, []byte("x"), store.PutOptions{})
		return err
	}},
	{"replace", 3, func(ctx context.Context, s *b2.Store, o store.Object) error {
		_, err := s.Put(ctx, o.Key, []byte("x"), store.PutOptions{Replaces: o.ETag})
		return err
	}},
	{"get", 1, func(ctx context.Context, s *b2.Store, o store.Object) error {
		_, _, err := s.Get(ctx, o.Key, 100)
		return err
	}},
	{"list", 1, func(ctx context.Context, s *b2.Store, o store.Object) error {
		_, err := s.List(ctx, o.Key, "")
		return err
	}},
	{"delete", 2, func(ctx context.Context, s *b2.Store, o store.Object) error { return s.Delete(ctx, o.Key) }},
	{"describe", 1, func(ctx context.Context, s *b2.Store, _ store.Object) error {
		_, err := s.Describe(ctx)
		return err
	}},
}

// TestRequests: each method sends this number of requests, and those that set up a session are
// sent once.
func TestRequests(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	if log := f.TakeLog(); len(log) != 0 {
		t.Errorf("opening a store makes requests: %v", log)
	}
	put(t, s, "k", "")
	if got := calls(f.TakeLog()); !slices.Equal(got, []string{"b2_authorize_account", "b2_list_buckets", "b2_get_upload_url", "b2_upload_file"}) {
		t.Errorf("the first put: %q", got)
	}
	put(t, s, "k2", "another")
	for _, m := range each {
		o := put(t, s, "k", "")
		f.TakeLog()
		if err := m.do(t.Context(), s, o); err != nil {
			t.Error(err)
		}
		if log := f.TakeLog(); len(log) != m.requests {
			t.Errorf("%s: %v", m.name, log)
		}
	}
	if _, err := s.Put(t.Context(), "k", nil, store.PutOptions{IfAbsent: true}); !errors.Is(err, store.ErrConditionUnsupported) {
		t.Error(err)
	}
	if _, err := s.Put(t.Context(), "k", nil, store.PutOptions{IfMatch: "x"}); !errors.Is(err, store.ErrConditionUnsupported) {
		t.Error(err)
	}
	if log := f.TakeLog(); len(log) != 0 {
		t.Errorf("conditional puts: %v", log)
	}
}

func calls(log []fakeb2.Request) (calls []string) {
	for _, r := range log {
		calls = append(calls, r.Call)
	}
	return calls
}

// eachRequest runs a test for each request of some methods, on a store that has put an object.
func eachRequest(t *testing.T, methods []method, test func(t *testing.T, m method, at int, f *fake, s *b2.Store, o store.Object)) {
	for _, m := range methods {
		for at := range m.requests {
			t.Run(fmt.Sprintf("%s, request %d", m.name, at), func(t *testing.T) {
				f := serve(t, fakeb2.Options{})
				s := f.open(t)
				var o store.Object
				if m.name != "first request" {
					o = put(t, s, "k", "old")
				}
				test(t, m, at, f, s, o)
			})
		}
	}
}

// TestExpiredTokens: a method succeeds if all tokens expire before any one of its requests.
func TestExpiredTokens(t *testing.T) {
	eachRequest(t, each, func(t *testing.T, m method, at int, f *fake, s *b2.Store, o store.Object) {
		var n atomic.Int32
		f.Before(func(string, *http.Request) {
			if int(n.Add(1)) == at+1 {
				f.ExpireTokens()
			}
		})
		f.TakeLog()
		must(t, m.do(t.Context(), s, o))
		log := f.TakeLog()
		expired := slices.ContainsFunc(log, func(r fakeb2.Request) bool { return r.Status == http.StatusUnauthorized })
		if !expired || !slices.Contains(calls(log), "b2_authorize_account") {
			t.Errorf("nothing had expired: %v", log)
		}
	})
}

// TestNotFound: an object is missing only if B2's answer about the object says so. Neither a
// session that can't begin nor an answer of another server shows it.
func TestNotFound(t *testing.T) {
	for name, answer := range map[string]struct{ call, code string }{
		"authorization": {"b2_authorize_account", "not_found"},
		"bucket":        {"b2_list_buckets", "not_found"},
		"not B2's":      {"b2_download_file_by_name", ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := serve(t, fakeb2.Options{})
			put(t, f.open(t), "k", "")
			f.Fail(answer.call, 1, http.StatusNotFound, answer.code)
			if _, _, err := f.open(t).Get(t.Context(), "k", 100); err == nil || errors.Is(err, store.ErrNotFound) {
				t.Error(err)
			}
		})
	}
}

// TestExpiredTwice: a server that never takes its tokens isn't asked for ever.
func TestExpiredTwice(t *testing.T) {
	for _, m := range each {
		f := serve(t, fakeb2.Options{})
		s := f.open(t)
		o := put(t, s, "k", "old")
		f.Before(func(string, *http.Request) { f.ExpireTokens() })
		f.TakeLog()
		err := m.do(t.Context(), s, o)
		log := f.TakeLog()
		if m.name != "put again" && (err == nil || store.Permanent(err)) || len(log) > 12 {
			t.Errorf("%s: %v: %v", m.name, err, log)
		}
	}
}

// TestUploadURLs: an error of the server's ends the use of an upload URL, and the
// next put gets another.
func TestUploadURLs(t *testing.T) {
	for _, status := range []int{500, 503, 408, 429} {
		f := serve(t, fakeb2.Options{})
		s := f.open(t)
		put(t, s, "k", "1")
		f.Fail("b2_upload_file", 1, status, "as_it_is")
		f.TakeLog()
		if _, err := s.Put(t.Context(), "k", []byte("2"), store.PutOptions{}); err == nil || store.Permanent(err) {
			t.Errorf("%d: %v", status, err)
		}
		if got := calls(f.TakeLog()); !slices.Equal(got, []string{"b2_upload_file"}) {
			t.Errorf("%d: the driver repeats: %q", status, got)
		}
		put(t, s, "k", "3")
		if got := calls(f.TakeLog()); !slices.Equal(got[:2], []string{"b2_get_upload_url", "b2_upload_file"}) {
			t.Errorf("%d: %q", status, got)
		}
		f.has(t, "3")
	}
}

// TestHanging: if the server never answers one of a method's requests, the method returns when
// its context ends, and closes its connection.
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
			_, _ = io.Copy(io.Discard, r.Body) // a closed connection shows only behind the body
			cancel()
			<-r.Context().Done()
			close(closed)
		})
		err := m.do(ctx, s, o)
		<-closed
		// The put stays applied, although the version below it couldn't be removed.
		if done := m.requests > 1 && at == m.requests-1 && m.name != "delete"; done && err != nil || !done && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		if err := m.do(t.Context(), s, o); err != nil && !errors.Is(err, store.ErrPrecondition) {
			t.Errorf("afterwards: %v", err)
		}
	})
}

// TestWaitingForASession: a request that waits for another's authorization heeds its own
// context.
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
	first := make(chan error)
	go func() {
		_, err := s.List(t.Context(), "", "")
		first <- err
	}()
	<-asked
	ctx, cancel := context.WithCancel(t.Context())
	waits := &waited{Context: ctx, done: make(chan struct{})}
	second := make(chan error)
	go func() {
		_, err := s.List(waits, "", "")
		second <- err
	}()
	<-waits.done
	cancel()
	if err := <-second; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(answer)
	if err := <-first; err != nil {
		t.Error(err)
	}
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

// TestHangingBody: a method returns when its context ends, even in the middle of an answer.
func TestHangingBody(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	put(t, f.open(t), "k", "the body")
	for _, m := range each {
		if m.requests > 1 {
			continue
		}
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
		put(t, s, "other", "") // sets up the session
		hang.Store(true)
		if err := m.do(ctx, s, store.Object{Key: "k"}); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", m.name, err)
		}
		cancel()
	}
}

// TestManyExpiredURLs: a put succeeds although all kept upload URLs have expired.
func TestManyExpiredURLs(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	const n = 5
	var at sync.WaitGroup // so that each has a URL of its own
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
			if _, err := s.Put(t.Context(), fmt.Sprint(i), nil, store.PutOptions{}); err != nil {
				t.Error(err)
			}
		})
	}
	puts.Wait()
	f.Before(nil)
	if got := calls(f.TakeLog()); len(got) != 2+2*n {
		t.Errorf("%q", got)
	}
	f.ExpireTokens()
	put(t, s, "k", "")
}

// TestListingsEnd: a server whose listings have no end isn't asked for ever.
func TestListingsEnd(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	var listings atomic.Int64
	s := f.behind(t, func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
		page := map[string]any{}
		if err := json.Unmarshal(answer.Body.Bytes(), &page); err != nil {
			t.Error(err)
		}
		if strings.Contains(r.URL.Path, "/b2_list_file_") {
			page["nextFileName"], page["nextFileId"] = prefix+"index/k", "an-id"
			if listings.Add(1) > 300 {
				answer.Code = http.StatusTeapot
			}
		}
		w.WriteHeader(answer.Code)
		_ = json.NewEncoder(w).Encode(page)
	})
	if _, err := s.Put(t.Context(), "index/k", []byte("{}"), store.PutOptions{}); err != nil {
		t.Fatal(err)
	}
	for name, request := range map[string]func() error{
		"versions": func() error { return s.Delete(t.Context(), "index/k") },
		"names": func() (err error) {
			page := store.Page{}
			for more := true; more && err == nil; more = page.Next != "" {
				page, err = store.Finite(s).List(t.Context(), "index/", page.Next)
			}
			return err
		},
	} {
		listings.Store(0)
		if err := request(); !errors.Is(err, store.ErrListing) || !strings.Contains(err.Error(), "index/k") && name == "versions" {
			t.Errorf("%s: after %d pages: %v", name, listings.Load(), err)
		}
	}
}
