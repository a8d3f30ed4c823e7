package b2_test

import (
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"sync/atomic"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

const (
	keyID  = "000a"
	key    = "K000secret"
	bucket = "a-bucket"
	prefix = "some/prefix/"
)

// least are the capabilities that a lock needs.
var least = []string{"listFiles", "readFiles", "writeFiles", "deleteFiles"}

func TestMain(m *testing.M) {
	for name, value := range map[string]string{"B2_APPLICATION_KEY_ID": keyID, "B2_APPLICATION_KEY": key} {
		if err := os.Setenv(name, value); err != nil {
			panic(err)
		}
	}
	os.Exit(m.Run())
}

// fake is a server with a bucket, for one test.
type fake struct {
	*fakeb2.Server
	url  string
	keys atomic.Int64 // number of keys that openAs has added
}

func serve(t *testing.T, opts fakeb2.Options) *fake {
	t.Helper()
	if opts.Keys == nil {
		opts.Keys = []fakeb2.Key{{ID: keyID, Secret: key}}
	}
	s := fakeb2.New(opts)
	s.AddBucket(fakeb2.Bucket{Name: bucket})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return &fake{Server: s, url: h.URL}
}

// stored returns a server with the object "k", and the store that has put the object.
func stored(t *testing.T, body string) (*fake, *b2.Store, store.Object) {
	t.Helper()
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	return f, s, put(t, s, "k", body)
}

// calls returns the names of the requests since it was last called.
func (f *fake) calls() (calls []string) {
	for _, r := range f.TakeLog() {
		calls = append(calls, r.Call)
	}
	return calls
}

// open returns a new store on the server, as another process would open.
func (f *fake) open(t *testing.T) *b2.Store {
	t.Helper()
	return open(t, "b2://"+bucket+"/"+prefix+"?endpoint="+f.url)
}

// behind returns a store on the server behind a proxy. change writes each answer to w, which already has
// the answer's headers.
func (f *fake) behind(t *testing.T, change func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder)) *b2.Store {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer := httptest.NewRecorder()
		f.ServeHTTP(answer, r)
		maps.Copy(w.Header(), answer.Header())
		change(w, r, answer)
	}))
	t.Cleanup(h.Close)
	return open(t, "b2://"+bucket+"/"+prefix+"?endpoint="+h.URL)
}

// openAs is open with another application key.
func (f *fake) openAs(t *testing.T, k fakeb2.Key) *b2.Store {
	t.Helper()
	k.ID, k.Secret = fmt.Sprintf("%04x", f.keys.Add(1)+0x1000), "K000other"
	f.AddKey(k)
	s, err := b2.New(bucket, b2.Options{KeyID: k.ID, Key: k.Secret, Prefix: prefix, Endpoint: f.url})
	assert.OK(t, err)
	return s
}

func open(t *testing.T, raw string) *b2.Store {
	t.Helper()
	u, err := url.Parse(raw)
	assert.OK(t, err)
	s, err := b2.Open(t.Context(), u)
	assert.OK(t, err)
	return s
}

func put(t *testing.T, s store.Store, key, body string) store.Object {
	t.Helper()
	return replace(t, s, key, body, "")
}

func replace(t *testing.T, s store.Store, key, body, etag string) store.Object {
	t.Helper()
	o, err := s.Put(t.Context(), key, []byte(body), store.PutOptions{Replaces: etag})
	assert.OK(t, err)
	return o
}

// has checks the bodies of all versions, the newest first. "-" is a hide marker.
func (f *fake) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, v := range f.Versions(bucket) {
		if v.Action == "hide" {
			got = append(got, "-")
		} else {
			got = append(got, string(v.Body))
		}
	}
	assert.Equal(t, got, want, "versions")
}

func (f *fake) delete(t *testing.T, key string) {
	t.Helper()
	assert.OK(t, f.open(t).Delete(t.Context(), key))
}

// noDelete is an application key that can't delete.
var noDelete = fakeb2.Key{Capabilities: []string{"listBuckets", "listFiles", "readFiles", "writeFiles"}}

// hide deletes an object with a key that can only hide it.
func (f *fake) hide(t *testing.T, key string) {
	t.Helper()
	s := f.openAs(t, noDelete)
	assert.OK(t, s.Delete(t.Context(), key))
}
