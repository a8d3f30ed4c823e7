package b2_test

import (
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/fakeb2"
	"github.com/repolock/repolock/internal/test/freeport"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/b2"
)

func TestURLs(t *testing.T) {
	for raw, good := range map[string]bool{
		"b2://bucket":                                      true,
		"b2://bucket/":                                     true,
		"b2://bucket/a/prefix":                             true,
		"b2://bucket/a%20prefix/":                          true,
		"b2://bucket?endpoint=https://host":                true,
		"b2://bucket?endpoint=https://host:1/":             true,
		"b2://bucket?endpoint=http://127.0.0.1:1":          true,
		"b2://bucket?endpoint=http://[::1]:1":              true,
		"b2://bucket?endpoint=http://localhost:1":          true,
		"b2://bucket:1/prefix":                             false,
		"b2://buc.ket/prefix":                              false,
		"b2://bucket/a//b":                                 false,
		"b2://bucket/../b":                                 false,
		"b2://bucket/a%00b":                                false,
		"b2://bucket/a%0Ab":                                false,
		"b2://bucket/" + strings.Repeat("x", 251):          false,
		"b2://bucket?region=x":                             false,
		"b2://bucket?endpoint=":                            false,
		"b2://bucket?endpoint=host":                        false,
		"b2://bucket?endpoint=ftp://host":                  false,
		"b2://bucket?endpoint=http://host":                 false,
		"b2://bucket?endpoint=http://127.0.0.1.example.co": false,
		"b2://bucket?endpoint=https://topsecret@host":      false,
		"b2://bucket?endpoint=https://host/path":           false,
		"b2://bucket?a=%zz":                                false,
	} {
		u, err := url.Parse(raw)
		must(t, err)
		s, err := b2.Open(t.Context(), u)
		if good && (err != nil || s == nil) || !good && (!errors.Is(err, store.ErrURL) || s != nil || strings.Contains(err.Error(), "topsecret")) {
			t.Errorf("%s: %v, %v", raw, s, err)
		}
	}
}

func TestNoKey(t *testing.T) {
	for _, missing := range []string{"B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY"} {
		t.Run(missing, func(t *testing.T) {
			t.Setenv(missing, "")
			_, err := b2.Open(t.Context(), &url.URL{Host: "bucket"})
			if !errors.Is(err, store.ErrConfig) || !strings.Contains(err.Error(), "B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY") {
				t.Error(err)
			}
		})
	}
}

// TestNew: a store takes its application key from its options, whatever the environment has.
func TestNew(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	for _, name := range []string{"B2_APPLICATION_KEY_ID", "B2_APPLICATION_KEY"} {
		t.Setenv(name, "another")
	}
	s, err := b2.New(bucket, b2.Options{KeyID: keyID, Key: key, Prefix: prefix, Endpoint: f.url})
	must(t, err)
	put(t, s, "k", "body")
	f.has(t, "body")
	if s, err := b2.New(bucket, b2.Options{KeyID: keyID}); !errors.Is(err, store.ErrConfig) || s != nil || strings.Contains(err.Error(), "B2_") {
		t.Errorf("without a key: %v", err)
	}
}

// TestKeysThatB2Refuses are refused before B2 is asked.
func TestKeysThatB2Refuses(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	for _, key := range []string{"a\nb", "a\x1fb", "a\x7fb", "a/" + strings.Repeat("x", 251), strings.Repeat("ü", 126), strings.Repeat("abcdefg/", 127) + "end"} {
		for name, err := range methods(t, s, key) {
			if name != "list" && !errors.Is(err, store.ErrInvalidKey) {
				t.Errorf("%s %q: %v", name, key, err)
			}
		}
	}
	for _, key := range []string{strings.Repeat("x", 250) + "/" + strings.Repeat("ü", 125), strings.Repeat("abcdefg/", 126) + "end", "a b+c%20&?#*", "\u0080", `"<>`} {
		put(t, s, key, key)
		for name, err := range methods(t, s, key) {
			if err != nil {
				t.Errorf("%s %q: %v", name, key, err)
			}
		}
	}
	f.has(t)
}

// TestUndeletable: the error for an object whose name is no key of ours has the command that
// deletes it.
func TestUndeletable(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	err := s.Delete(t.Context(), "index/lock.shared/it's/../x")
	if want := `as: b2 rm --versions 'b2://`; !errors.Is(err, store.ErrInvalidKey) || !strings.Contains(err.Error(), want) ||
		!strings.HasSuffix(err.Error(), `index/lock.shared/it'\''s/../x'`) {
		t.Error(err)
	}
}

// answers is a server that answers every request alike.
func answers(t *testing.T, status int, body string) string {
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(status)
		_, _ = io.WriteString(w, body)
	}))
	t.Cleanup(h.Close)
	return h.URL
}

// TestNotB2: an endpoint of another service, or without a listener, is reported as such.
func TestNotB2(t *testing.T) {
	tls := httptest.NewUnstartedServer(http.NotFoundHandler())
	tls.Config.ErrorLog = log.New(io.Discard, "", 0)
	tls.StartTLS()
	t.Cleanup(tls.Close)
	port, err := freeport.Free()
	must(t, err)
	page := "<html><body>Hello</body></html>"
	for name, test := range map[string]struct {
		endpoint string
		err      error // nil if it can work the next time
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
		"down":              {answers(t, 503, page), nil},
		"busy":              {answers(t, 429, `{"status":429,"code":"too_many_requests","message":"no"}`), nil},
		"no listener":       {fmt.Sprintf("http://127.0.0.1:%d", port), nil},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, "b2://"+bucket+"?endpoint="+test.endpoint)
			for name, err := range methods(t, s, "k") {
				if err == nil || test.err != nil && !errors.Is(err, test.err) || test.err == nil && store.Permanent(err) {
					t.Errorf("%s: %v", name, err)
				}
				if strings.ContainsAny(err.Error(), "\n\r") || strings.Contains(err.Error(), key) {
					t.Errorf("%s: %q", name, err)
				}
			}
		})
	}
}

// TestRefusedKey: the error for a refused authorization says what to do.
func TestRefusedKey(t *testing.T) {
	for _, test := range []struct {
		status       int
		code, reason string
		err          error
		says         string
	}{
		{401, "bad_auth_token", "no", store.ErrPermission, "check B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY"},
		{401, "unauthorized", "no", store.ErrPermission, "check B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY"},
		{403, "access_denied", "no", store.ErrPermission, "check B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY"},
		{400, "bad_request", "no", store.ErrConfig, "check B2_APPLICATION_KEY_ID, B2_APPLICATION_KEY and the endpoint"},
		{404, "not_found", "no", store.ErrConfig, "check B2_APPLICATION_KEY_ID, B2_APPLICATION_KEY and the endpoint"},
		{400, "bad_request", "This request is not currently supported on API version number 4", store.ErrConfig, "update repolock, or make a key that isn't restricted to buckets"},
	} {
		f := serve(t, fakeb2.Options{})
		f.FailSaying("b2_authorize_account", 1, test.status, test.code, test.reason)
		_, err := f.open(t).List(t.Context(), "", "")
		if !errors.Is(err, test.err) || !strings.HasSuffix(err.Error(), test.says) {
			t.Errorf("%d %s: %v", test.status, test.code, err)
		}
	}
}

// TestErrors: each of the server's errors about a bucket or a key has its meaning.
func TestErrors(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	for name, err := range methods(t, open(t, "b2://other-bucket?endpoint="+f.url), "k") {
		if !errors.Is(err, store.ErrNotFound) || !strings.Contains(err.Error(), "other-bucket") {
			t.Errorf("%s: %v", name, err)
		}
	}
	s := f.open(t)
	put(t, s, "k", "")
	for _, code := range []string{"storage_cap_exceeded", "transaction_cap_exceeded", "download_cap_exceeded"} {
		for _, call := range []string{"b2_upload_file", "b2_list_file_names", "b2_download_file_by_name", "b2_list_file_versions"} {
			f.Fail(call, 1, 403, code)
		}
		for name, err := range methods(t, s, "k") {
			if cap, _, _ := strings.Cut(code, "_"); err == nil || store.Permanent(err) || !strings.Contains(err.Error(), cap) {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
}

// TestBucketMadeAnew: a bucket that was deleted and made again has another ID, and the store
// finds it.
func TestBucketMadeAnew(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	if _, err := s.List(t.Context(), "", ""); err != nil {
		t.Fatal(err)
	}
	f.DeleteBucket(bucket)
	if _, err := s.List(t.Context(), "", ""); !errors.Is(err, store.ErrNotFound) {
		t.Error(err)
	}
	f.AddBucket(fakeb2.Bucket{Name: bucket})
	if _, err := s.List(t.Context(), "", ""); err != nil {
		t.Error(err)
	}
}

// TestNoSecrets: an error shows no token, although some of the server's messages quote it.
func TestNoSecrets(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	s := f.open(t)
	put(t, s, "k", "")
	var tokens []string
	f.Before(func(call string, r *http.Request) {
		tokens = append(tokens, r.Header.Get("Authorization"))
		f.FailSaying(call, 1, 400, "bad_request", fmt.Sprintf("bad token %s\nof %s", r.Header.Get("Authorization"), strings.Repeat("x", 500)))
	})
	for _, m := range each {
		err := m.do(t.Context(), s, store.Object{Key: "k", ETag: "x"})
		if err == nil || len(err.Error()) > 350 || strings.Contains(err.Error(), "\n") {
			t.Errorf("%s: %v", m.name, err)
		}
		for _, token := range tokens {
			if strings.Contains(fmt.Sprint(err), token) {
				t.Errorf("%s: %v", m.name, err)
			}
		}
	}
	if len(tokens) < len(each) {
		t.Errorf("only %d requests", len(tokens))
	}
}

// TestBrokenDownloads: a body that is cut off, or isn't the stored one, is an error.
func TestBrokenDownloads(t *testing.T) {
	f := serve(t, fakeb2.Options{})
	put(t, f.open(t), "k", "the body")
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
		if body, _, err := s.Get(t.Context(), "k", 100); err == nil || store.Permanent(err) {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}
