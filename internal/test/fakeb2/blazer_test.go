package fakeb2_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"slices"
	"testing"

	"github.com/Backblaze/blazer/b2"

	"github.com/repolock/repolock/internal/test/fakeb2"
)

// These tests run Backblaze's own client on the fake: the package that repeats requests, and
// not the one that store/b2 uses.

var master = fakeb2.Key{ID: "000a", Secret: "K000secret"}

func serve(t *testing.T, opts fakeb2.Options) (*fakeb2.Server, string) {
	t.Helper()
	opts.Keys = append(opts.Keys, master)
	s, err := fakeb2.New(opts)
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	return s, h.URL
}

func client(t *testing.T, url string, k fakeb2.Key) *b2.Client {
	t.Helper()
	c, err := b2.NewClient(t.Context(), k.ID, k.Secret, b2.APIBase(url))
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func newBucket(t *testing.T, c *b2.Client) *b2.Bucket {
	t.Helper()
	b, err := c.NewBucket(t.Context(), "a-bucket", nil)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func write(t *testing.T, b *b2.Bucket, name, body string) {
	t.Helper()
	w := b.Object(name).NewWriter(t.Context(), b2.WithAttrsOption(&b2.Attrs{ContentType: "text/plain", Info: map[string]string{"key": "a ü value"}}))
	if _, err := io.WriteString(w, body); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
}

func read(ctx context.Context, b *b2.Bucket, name string) (string, error) {
	r := b.Object(name).NewReader(ctx)
	defer r.Close()
	body, err := io.ReadAll(r)
	return string(body), err
}

func list(t *testing.T, b *b2.Bucket, opts ...b2.ListOption) (found []string) {
	t.Helper()
	it := b.List(t.Context(), opts...)
	for it.Next() {
		found = append(found, it.Object().Name())
	}
	if err := it.Err(); err != nil {
		t.Fatal(err)
	}
	return found
}

func same(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestBlazer(t *testing.T) {
	for _, page := range []int{0, 2} {
		t.Run(fmt.Sprintf("page=%d", page), func(t *testing.T) {
			_, url := serve(t, fakeb2.Options{PageSize: page})
			c := client(t, url, master)
			b := newBucket(t, c)
			names := []string{"a b+c%", "a/b", "a/c", "a/d/e", "b", "ü/日本"}
			for _, name := range slices.Backward(names) {
				write(t, b, name, "body of "+name)
			}
			for _, name := range names {
				if body, err := read(t.Context(), b, name); err != nil || body != "body of "+name {
					t.Errorf("%s: %q, %v", name, body, err)
				}
			}
			same(t, list(t, b), names...)
			same(t, list(t, b, b2.ListPrefix("a/")), "a/b", "a/c", "a/d/e")
			same(t, list(t, b, b2.ListPrefix("a/"), b2.ListDelimiter("/")), "a/b", "a/c", "a/d/")

			attrs, err := b.Object("b").Attrs(t.Context())
			if err != nil || attrs.Size != int64(len("body of b")) || attrs.ContentType != "text/plain" || attrs.Info["key"] != "a ü value" || attrs.UploadTimestamp.IsZero() {
				t.Errorf("%+v, %v", attrs, err)
			}
			part, err := io.ReadAll(b.Object("b").NewRangeReader(t.Context(), 5, 2))
			if err != nil || string(part) != "of" {
				t.Errorf("%q, %v", part, err)
			}

			// This test covers versions, hide markers, and deletions that uncover versions.
			write(t, b, "b", "newer")
			if err := b.Object("b").Hide(t.Context()); err != nil {
				t.Fatal(err)
			}
			if _, err := read(t.Context(), b, "b"); !b2.IsNotExist(err) {
				t.Errorf("of a hidden name: %v", err)
			}
			same(t, list(t, b, b2.ListPrefix("b")))
			same(t, list(t, b, b2.ListPrefix("b"), b2.ListHidden()), "b", "b", "b")
			if err := b.Reveal(t.Context(), "b"); err != nil {
				t.Fatal(err)
			}
			if body, err := read(t.Context(), b, "b"); err != nil || body != "newer" {
				t.Errorf("%q, %v", body, err)
			}
			if err := b.Object("b").Delete(t.Context()); err != nil {
				t.Fatal(err)
			}
			if body, err := read(t.Context(), b, "b"); err != nil || body != "body of b" {
				t.Errorf("%q, %v", body, err)
			}

			if err := b.Delete(t.Context()); err == nil {
				t.Error("a bucket was deleted that isn't empty")
			}
			for _, name := range names {
				if err := b.Object(name).Delete(t.Context()); err != nil {
					t.Error(err)
				}
			}
			if err := b.Delete(t.Context()); err != nil {
				t.Error(err)
			}
			if _, err := c.Bucket(t.Context(), "a-bucket"); !b2.IsNotExist(err) {
				t.Error(err)
			}
		})
	}
}

// TestBlazerRecovers: blazer authorizes again, and gets another upload URL.
func TestBlazerRecovers(t *testing.T) {
	s, url := serve(t, fakeb2.Options{})
	b := newBucket(t, client(t, url, master))
	write(t, b, "k", "1")
	s.ExpireTokens()
	write(t, b, "k", "2")
	s.ExpireTokens()
	if body, err := read(t.Context(), b, "k"); err != nil || body != "2" {
		t.Errorf("%q, %v", body, err)
	}
	s.Fail("b2_upload_file", 1, 503, "service_unavailable")
	write(t, b, "k", "3")
	if body, err := read(t.Context(), b, "k"); err != nil || body != "3" {
		t.Errorf("%q, %v", body, err)
	}
	var statuses []int
	for _, r := range s.TakeLog() {
		statuses = append(statuses, r.Status)
	}
	if !slices.Contains(statuses, http.StatusUnauthorized) || !slices.Contains(statuses, http.StatusServiceUnavailable) {
		t.Errorf("nothing was refused: %v", statuses)
	}
}

func TestBlazerRestricted(t *testing.T) {
	k := fakeb2.Key{ID: "000b", Secret: "K000other", Bucket: "a-bucket", Prefix: "some/", Capabilities: []string{"listBuckets", "listFiles", "readFiles", "writeFiles"}}
	_, url := serve(t, fakeb2.Options{Keys: []fakeb2.Key{k}})
	all := newBucket(t, client(t, url, master))
	write(t, all, "some/k", "1")
	write(t, all, "other/k", "1")
	b, err := client(t, url, k).Bucket(t.Context(), "a-bucket")
	if err != nil {
		t.Fatal(err)
	}
	write(t, b, "some/k", "2")
	same(t, list(t, b, b2.ListPrefix("some/")), "some/k")
	if body, err := read(t.Context(), b, "some/k"); err != nil || body != "2" {
		t.Errorf("%q, %v", body, err)
	}
	// blazer takes any 401 for an expired token and tries for ever: the rest is
	// in TestRefusals.
}

// TestFile: a server that is started again still has its objects.
func TestFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	first, url := serve(t, fakeb2.Options{File: path})
	b := newBucket(t, client(t, url, master))
	for i := range 3 {
		write(t, b, "k", fmt.Sprint(i))
	}
	if err := b.Object("k").Delete(t.Context()); err != nil {
		t.Fatal(err)
	}
	write(t, b, "gone", "")
	if err := b.Object("gone").Hide(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprintf("%+v", first.Versions("a-bucket"))

	second, url := serve(t, fakeb2.Options{File: path})
	if got := fmt.Sprintf("%+v", second.Versions("a-bucket")); got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	b, err := client(t, url, master).Bucket(t.Context(), "a-bucket")
	if err != nil {
		t.Fatal(err)
	}
	if body, err := read(t.Context(), b, "k"); err != nil || body != "1" {
		t.Errorf("%q, %v", body, err)
	}
	write(t, b, "k", "new")
	ids := map[string]bool{}
	for _, v := range second.Versions("a-bucket") {
		ids[v.ID] = true
	}
	if len(ids) != 5 {
		t.Errorf("%d IDs of five versions", len(ids))
	}
}
