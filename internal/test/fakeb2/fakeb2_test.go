package fakeb2_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
)

// caller sends requests as they are.
type caller struct {
	t          *testing.T
	url, token string
}

func (c *caller) signIn(keyID string) {
	r, _ := http.NewRequestWithContext(c.t.Context(), http.MethodGet, c.url+"/b2api/v4/b2_authorize_account", nil)
	r.SetBasicAuth(keyID, "K000secret")
	c.token, _ = c.do(r, 200)["authorizationToken"].(string)
}

// do sends a request, checks the status, and returns the answer, if it is JSON.
func (c *caller) do(r *http.Request, status int) map[string]any {
	c.t.Helper()
	res, err := http.DefaultClient.Do(r)
	assert.OK(c.t, err)
	defer res.Body.Close()
	raw, err := io.ReadAll(res.Body)
	assert.OK(c.t, err)
	if res.StatusCode != status || res.Header.Get("Date") == "" {
		c.t.Errorf("%s: %s, want %d: %s", r.URL.Path, res.Status, status, raw)
	}
	var answer map[string]any
	_ = json.Unmarshal(raw, &answer)
	return answer
}

// call is one with parameters that are given as JSON.
func (c *caller) call(status int, code, name, params string, args ...any) map[string]any {
	c.t.Helper()
	r, _ := http.NewRequestWithContext(c.t.Context(), http.MethodPost, c.url+"/b2api/v3/"+name, strings.NewReader(fmt.Sprintf(params, args...)))
	r.Header.Set("Authorization", c.token)
	return c.code(c.do(r, status), code)
}

func (c *caller) code(answer map[string]any, want string) map[string]any {
	c.t.Helper()
	got, _ := answer["code"].(string)
	assert.Equal(c.t, got, want, "code of %v", answer)
	return answer
}

// uploading is the request that sends a file to an upload URL.
func (c *caller) uploading(to map[string]any, name, sha1 string, body io.Reader) *http.Request {
	r, _ := http.NewRequestWithContext(c.t.Context(), http.MethodPost, to["uploadUrl"].(string), body)
	r.Header.Set("Authorization", to["authorizationToken"].(string))
	r.Header.Set("X-Bz-File-Name", name)
	r.Header.Set("X-Bz-Content-Sha1", sha1)
	r.Header.Set("Content-Type", "text/plain")
	return r
}

func (c *caller) upload(status int, code string, to map[string]any, name, sha1 string, body io.Reader) map[string]any {
	c.t.Helper()
	return c.code(c.do(c.uploading(to, name, sha1, body), status), code)
}

const sha1OfHello = "aaf4c61ddcc5e8a2dabede0f3b482cd9aea9434d"

func withBucket(t *testing.T, opts fakeb2.Options) (s *fakeb2.Server, c *caller, bucket string) {
	t.Helper()
	opts.Keys = append(opts.Keys, fakeb2.Key{ID: "000a", Secret: "K000secret"})
	s = fakeb2.New(opts)
	s.AddBucket(fakeb2.Bucket{Name: "a-bucket"})
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	c = &caller{t: t, url: h.URL}
	c.signIn("000a")
	found := c.call(200, "", "b2_list_buckets", `{"bucketName":"a-bucket"}`)["buckets"].([]any)
	return s, c, found[0].(map[string]any)["bucketId"].(string)
}

// TestUploadRefusals: an upload URL goes with its token, and takes one upload at a time. What the server
// refuses otherwise, the tests of store/b2 need.
func TestUploadRefusals(t *testing.T) {
	s, c, bucket := withBucket(t, fakeb2.Options{})
	to := c.call(200, "", "b2_get_upload_url", `{"bucketId":%q}`, bucket)
	c.upload(200, "", to, "a%20b+c", sha1OfHello, strings.NewReader("hello"))
	if v := s.Versions("a-bucket"); len(v) != 1 || v[0].Name != "a b c" || string(v[0].Body) != "hello" {
		t.Errorf("%+v", v)
	}
	c.upload(400, "bad_request", to, "k", sha1OfHello, strings.NewReader("hullo"))
	c.upload(411, "length_required", to, "k", sha1OfHello, io.MultiReader(strings.NewReader("hello")))
	for _, name := range []string{"", "/k", "k/", "a//b", "a%5Cb", "a%0Ab", "%7F", "%FF", strings.Repeat("x", 251), strings.Repeat("x/", 512) + "x", "%zz"} {
		c.upload(400, "bad_request", to, name, sha1OfHello, strings.NewReader("hello"))
	}

	// The token and the URL go together.
	other := c.call(200, "", "b2_get_upload_url", `{"bucketId":%q}`, bucket)
	mixed := map[string]any{"uploadUrl": to["uploadUrl"], "authorizationToken": other["authorizationToken"]}
	c.upload(401, "bad_auth_token", mixed, "k", sha1OfHello, strings.NewReader("hello"))
	mixed["authorizationToken"] = c.token
	c.upload(401, "bad_auth_token", mixed, "k", sha1OfHello, strings.NewReader("hello"))

	// One upload at a time.
	r, w := io.Pipe()
	began := make(chan struct{})
	s.Before(func(string, *http.Request) { close(began) })
	first := make(chan error)
	go func() {
		req := c.uploading(to, "k", sha1OfHello, r)
		req.ContentLength = 5
		res, err := http.DefaultClient.Do(req)
		if err == nil {
			err = res.Body.Close()
		}
		first <- err
	}()
	_, _ = io.WriteString(w, "h")
	<-began
	s.Before(nil)
	for !s.Uploading() {
		runtime.Gosched()
	}
	c.upload(400, "auth_token_limit", to, "k", sha1OfHello, strings.NewReader("hello"))
	c.upload(200, "", other, "k", sha1OfHello, strings.NewReader("hello"))
	_, _ = io.WriteString(w, "ello")
	assert.Is(t, <-first, nil)
	c.upload(200, "", to, "k", sha1OfHello, strings.NewReader("hello"))

	// After a 503 another one is needed.
	s.Fail("b2_upload_file", 1, 503, "service_unavailable")
	for range 2 {
		c.upload(503, "service_unavailable", to, "k", sha1OfHello, strings.NewReader("hello"))
	}
	c.upload(200, "", other, "k", sha1OfHello, strings.NewReader("hello"))
	s.ExpireTokens()
	c.upload(401, "expired_auth_token", other, "k", sha1OfHello, strings.NewReader("hello"))
}

// TestRestricted: the server refuses a restricted key what is in another bucket or has another prefix. A store
// notices that before it sends a request.
func TestRestricted(t *testing.T) {
	_, c, bucket := withBucket(t, fakeb2.Options{Keys: []fakeb2.Key{
		{ID: "000b", Secret: "K000secret", Buckets: []string{"a-bucket"}, Prefix: "some/"}, {ID: "000c", Secret: "K000secret", Buckets: []string{"b-bucket"}},
	}})
	c.signIn("000b")
	c.call(200, "", "b2_list_buckets", `{"bucketId":%q}`, bucket)
	c.call(401, "unauthorized", "b2_list_buckets", `{}`)
	c.call(200, "", "b2_list_file_names", `{"bucketId":%q,"prefix":"some/x"}`, bucket)
	c.call(401, "unauthorized", "b2_list_file_names", `{"bucketId":%q}`, bucket)
	c.call(401, "unauthorized", "b2_list_file_versions", `{"bucketId":%q,"prefix":"some"}`, bucket)
	c.call(401, "unauthorized", "b2_hide_file", `{"bucketId":%q,"fileName":"k"}`, bucket)
	to := c.call(200, "", "b2_get_upload_url", `{"bucketId":%q}`, bucket)
	c.upload(401, "unauthorized", to, "k", sha1OfHello, strings.NewReader("hello"))
	c.upload(200, "", to, "some/k", sha1OfHello, strings.NewReader("hello"))
	r, _ := http.NewRequestWithContext(t.Context(), http.MethodGet, c.url+"/file/a-bucket/k", nil)
	r.Header.Set("Authorization", c.token)
	c.code(c.do(r, 401), "unauthorized")
	c.signIn("000c")
	c.call(401, "unauthorized", "b2_get_upload_url", `{"bucketId":%q}`, bucket)
}
