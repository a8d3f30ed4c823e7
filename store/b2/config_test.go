package b2_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/internal/test/requests"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

// TestNoKey: Open takes the application key from the environment, and New only from its options.
func TestNoKey(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	for _, missing := range []string{"B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY"} {
		t.Run(missing, func(t *testing.T) {
			t.Setenv(missing, "")
			_, err := b2.Open(t.Context(), &url.URL{Host: "bucket"})
			assert.Says(t, err, store.ErrConfig, "B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY")
		})
		t.Setenv(missing, "another")
	}
	s, err := b2.New(bucket, b2.Options{KeyID: keyID, Key: key, Prefix: prefix, Endpoint: f.url})
	assert.OK(t, err)
	put(t, s, "k", "body")
	f.has(t, "body")
	s, err = b2.New(bucket, b2.Options{KeyID: keyID})
	assert.Is(t, err, store.ErrConfig, "without a key")
	assert.That(t, s == nil && !strings.Contains(fmt.Sprint(err), "B2_"), "without a key: %v, %v", s, err)
}

// TestKeysThatB2Refuses: a key that breaks a rule of B2's is refused without a request.
func TestKeysThatB2Refuses(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	for _, key := range []string{
		"a\nb", "a\x1fb", "a\x7fb", "a/" + strings.Repeat("x", 251), strings.Repeat("ü", 126), strings.Repeat("abcdefg/", 127) + "end",
	} {
		for name, err := range requests.Each(t.Context(), s, key) {
			assert.That(t, name == "list" || errors.Is(err, store.ErrInvalidKey), "%s %q: %v", name, key, err)
		}
	}
	for _, key := range []string{
		strings.Repeat("x", 250) + "/" + strings.Repeat("ü", 125), strings.Repeat("abcdefg/", 126) + "end", "a b+c%20&?#*", "\u0080", `"<>`,
	} {
		put(t, s, key, key)
		for name, err := range requests.Each(t.Context(), s, key) {
			assert.Is(t, err, nil, "%s %q", name, key)
		}
	}
	f.has(t)
}

// TestUndeletable: if an object's name is an invalid key, the error has the command that deletes it.
func TestUndeletable(t *testing.T) {
	err := serve(t, fakeb2.Options{}).open(t).Delete(t.Context(), "index/lock.shared/it's/../x")
	assert.Says(t, err, store.ErrInvalidKey, `for example: b2 rm --versions 'b2://`)
	assert.Says(t, err, store.ErrInvalidKey, `index/lock.shared/it'\''s/../x'`)
}

// answers returns the URL of a server that answers every request alike.
func answers(t *testing.T, status int, body string) string {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// TestNotB2: an endpoint that isn't B2 is a wrong configuration. One that fails, or doesn't answer, might
// work the next time.
func TestNotB2(t *testing.T) {
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	port, err := freeport.Free()
	assert.OK(t, err)
	cut := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		_, _ = io.WriteString(w, `{"authorizationToken":"x`)
	}))
	t.Cleanup(cut.Close)
	page := "<html><body>Hello</body></html>"
	for name, test := range map[string]struct {
		endpoint string
		err      error // nil if the next request might succeed
	}{
		"a page":            {answers(t, 200, page), store.ErrConfig},
		"no page":           {answers(t, 404, page), store.ErrConfig},
		"S3":                {answers(t, 403, `<?xml version="1.0"?><Error><Code>AccessDenied</Code></Error>`), store.ErrConfig},
		"other JSON":        {answers(t, 200, `{}`), store.ErrConfig},
		"null":              {answers(t, 200, `null`), store.ErrConfig},
		"nothing":           {answers(t, 200, ``), store.ErrConfig},
		"half":              {answers(t, 200, `{"authorizationToken":"x","apiInfo":{"storageApi":{}}}`), store.ErrConfig},
		"three quarters":    {answers(t, 200, `{"authorizationToken":"x","apiInfo":{"storageApi":{"apiUrl":"https://192.0.2.1"}}}`), store.ErrConfig},
		"the third version": {answers(t, 200, `{"authorizationToken":"x","apiInfo":{"storageApi":{"apiUrl":"https://192.0.2.1","downloadUrl":"https://192.0.2.1","capabilities":["listFiles"]}}}`), store.ErrConfig},
		"a redirection":     {answers(t, 302, ``), store.ErrConfig},
		"in the clear":      {answers(t, 200, `{"authorizationToken":"x","apiInfo":{"storageApi":{"apiUrl":"http://192.0.2.1","downloadUrl":"http://192.0.2.1","allowed":{"capabilities":["listFiles"]}}}}`), store.ErrConfig},
		"TLS to plain":      {strings.Replace(answers(t, 200, page), "http:", "https:", 1), store.ErrConfig},
		"plain to TLS":      {strings.Replace(tls.URL, "https:", "http:", 1), store.ErrConfig},
		"not trusted":       {tls.URL, store.ErrConfig},
		"cut off":           {cut.URL, nil},
		"down":              {answers(t, 503, page), nil},
		"busy":              {answers(t, 429, `{"status":429,"code":"too_many_requests","message":"no"}`), nil},
		"no listener":       {fmt.Sprintf("http://127.0.0.1:%d", port), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "b2://"+bucket+"?endpoint="+test.endpoint)
			for name, err := range requests.Each(t.Context(), s, "k") {
				if test.err == nil {
					assert.That(t, err != nil && !store.Permanent(err), "%s: %v", name, err)
				} else {
					assert.Says(t, err, test.err, "", name)
				}
				assert.That(t, !strings.Contains(fmt.Sprint(err), key), "%s: %q", name, err)
			}
		})
	}
}

// TestAnswers: each refusal has its own meaning. Only B2's answer to a request for the object means that
// the object is missing: neither a refused session nor an answer without B2's form does.
func TestAnswers(t *testing.T) {
	type answer struct {
		call   string
		status int
		code   string // and the message, after a colon
		of     string // the refused method
		want   error
		says   string
	}
	const check = "check B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY"
	const endpoint = "check B2_APPLICATION_KEY_ID, B2_APPLICATION_KEY and the endpoint"
	const version = "bad_request: This request is not currently supported on API version number 4"
	mightPass := errors.New("it might pass")
	answers := []answer{
		{"b2_authorize_account", 401, "bad_auth_token", "get", store.ErrPermission, check},
		{"b2_authorize_account", 401, "unauthorized", "get", store.ErrPermission, check},
		{"b2_authorize_account", 403, "access_denied", "get", store.ErrPermission, check},
		{"b2_authorize_account", 400, "bad_request", "get", store.ErrConfig, endpoint},
		{"b2_authorize_account", 404, "not_found", "get", store.ErrConfig, endpoint},
		{"b2_authorize_account", 400, version, "get", store.ErrConfig, "update repolock, or make a key that isn't restricted to buckets"},
		{"b2_list_buckets", 404, "not_found", "get", mightPass, ""},
		{"b2_download_file_by_name", 404, "", "get", mightPass, ""},
	}
	for _, cap := range []string{"storage", "transaction", "download"} {
		for call, of := range map[string]string{
			"b2_upload_file": "put", "b2_list_file_names": "list", "b2_download_file_by_name": "get", "b2_list_file_versions": "delete",
		} {
			answers = append(answers, answer{call, 403, cap + "_cap_exceeded", of, mightPass, cap})
		}
	}
	for _, c := range answers {
		f, _, o := stored(t, "")
		code, message, _ := strings.Cut(c.code, ": ")
		f.FailSaying(c.call, 1, c.status, code, message)
		m := each[slices.IndexFunc(each, func(m method) bool { return m.name == c.of })]
		err := m.do(t.Context(), f.open(t), o)
		if c.want == mightPass {
			assert.That(t, err != nil && !store.Permanent(err), "%+v: %v", c, err)
			c.want = err
		}
		assert.Says(t, err, c.want, c.says, "%+v", c)
		assert.That(t, !errors.Is(err, store.ErrNotFound), "%+v: %v", c, err)
	}
}

// TestBucketMadeAnew: if a bucket is deleted, errors name it. If it is made again, a store finds its new ID.
func TestBucketMadeAnew(t *testing.T) {
	f, s, _ := stored(t, "")
	f.DeleteBucket(bucket)
	assert.Is(t, assert.Err(s.List(t.Context(), "", "")), store.ErrNotFound)
	for name, err := range requests.Each(t.Context(), f.open(t), "k") {
		assert.Says(t, err, store.ErrNotFound, bucket, name)
	}
	f.AddBucket(fakeb2.Bucket{Name: bucket})
	assert.Is(t, assert.Err(s.List(t.Context(), "", "")), nil)
}

// TestNoSecrets: an error shows no token, although the server's message quotes it.
func TestNoSecrets(t *testing.T) {
	f, s, _ := stored(t, "")
	var tokens []string
	f.Before(func(call string, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		f.FailSaying(call, 1, 400, "bad_request", fmt.Sprintf("bad token %s\nof %s", tokens[len(tokens)-1], strings.Repeat("x", 500)))
	})
	for _, m := range each {
		err := m.do(t.Context(), s, store.Object{Key: "k", ETag: "x"})
		text := fmt.Sprint(err)
		assert.That(t, err != nil && len(text) <= 350 && !strings.Contains(text, "\n"), "%s: %v", m.name, err)
		for _, token := range tokens {
			assert.That(t, !strings.Contains(text, token), "%s: %v", m.name, err)
		}
	}
	assert.That(t, len(tokens) >= len(each), "only %d requests", len(tokens))
}

// TestBrokenDownloads: a body that is cut off, or isn't the stored one, is an error.
func TestBrokenDownloads(t *testing.T) {
	f, _, _ := stored(t, "the body")
	for name, spoil := range map[string]func(http.Header, []byte) []byte{
		"cut off": func(_ http.Header, b []byte) []byte { return b[:3] },
		"changed": func(_ http.Header, b []byte) []byte { return append([]byte("X"), b[1:]...) },
		"shortened": func(h http.Header, b []byte) []byte {
			h.Set("Content-Length", "3")
			return b[:3]
		},
	} {
		s := f.behind(t, func(w http.ResponseWriter, r *http.Request, answer *httptest.ResponseRecorder) {
			body := answer.Body.Bytes()
			if strings.HasPrefix(r.URL.Path, "/file/") {
				body = spoil(w.Header(), body)
			}
			w.WriteHeader(answer.Code)
			_, _ = w.Write(body)
		})
		body, _, err := s.Get(t.Context(), "k", 100)
		assert.That(t, err != nil && !store.Permanent(err), "%s: %q, %v", name, body, err)
	}
}
