package open_test

import (
	"errors"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/open"
)

func TestStore(t *testing.T) {
	t.Chdir(t.TempDir())
	path, err := filepath.Abs("a repo")
	assert.OK(t, err)
	assert.OK(t, os.Mkdir(path, 0o700))
	slashed := filepath.ToSlash(path)
	if slashed[0] != '/' {
		slashed = "/" + slashed // a drive
	}
	for _, raw := range []string{path, "a repo", (&url.URL{Scheme: "file", Path: slashed}).String()} {
		s, err := open.Store(t.Context(), raw)
		assert.OK(t, err)
		assert.OK(t, assert.Err(s.Put(t.Context(), "k", []byte(raw), store.PutOptions{})))
		got, err := os.ReadFile(filepath.Join(path, "k"))
		assert.That(t, string(got) == raw && err == nil, "%q: wrote %q, %v", raw, got, err)
	}
}

// TestCheck: Check refuses the URLs that Store refuses, without a directory or a bucket. Its errors show no
// secret. A port that no server can have is wrong too.
func TestCheck(t *testing.T) {
	for _, raw := range []string{
		"/srv/repo", "file:///srv/repo", "s3://bucket/prefix?region=eu-central-1&profile=backup", "minio://host:9000/bucket/prefix?tls=false",
		"b2://bucket/prefix", "minio://host:65535/bucket/p", "s3://bucket/p?endpoint=host:65535", "b2://bucket/p?endpoint=https://host:65535",
		"b2://bucket", "b2://bucket/", "b2://bucket/a%20prefix/", "b2://bucket?endpoint=https://host:1/",
		"sftp://host/path", "sftp://user@host:2222//srv/a", "sftp://host/.", "sftp://host//", "sftp://[::1]/a", "sftp://host/a?command=ssh%20-J%20jump%20host%20-s%20sftp", "sftp://host/a?listings=fresh",
		"b2://bucket?endpoint=http://127.0.0.1:1", "b2://bucket?endpoint=http://[::1]:1", "b2://bucket?endpoint=http://localhost:1",
	} {
		assert.Is(t, open.Check(raw), nil, "%q", raw)
	}
	for _, raw := range []string{
		"", "gs://bucket", "s3://k:topsecret@bucket", "s3://bucket?secret_access_key=topsecret", "s3://bucket?topsecret",
		"s3://bucket?endpoint=https://k:topsecret@host", "minio://host/bucket?password=topsecret", "minio://host/bucket?topsecret",
		"minio://127.0.0.1:99999/bucket/p", "minio://host:/bucket/p", "s3://bucket/p?endpoint=http://host:0", "s3://bucket/p?endpoint=[::1]:65536",
		"b2://bucket/p?endpoint=https://host:0", "s3://name--usw2-az1--x-s3/prefix", "b2://bucket?key=topsecret", "b2://bucket?topsecret", "b2://bucket?endpoint=https://k:topsecret@host",
		"sftp://user:topsecret@host/a", "sftp://host", "sftp://host/", "sftp://-oProxyCommand=x/a", "sftp://-l@host/a", "sftp://host/~/a", "sftp://host/a?x=topsecret",
		"sftp://host/a?command=", "sftp://host/a?listings=cached", "sftp://host/a?command=a&command=b", "sftp://us%20er@host/a", "sftp://host/a%00b", "sftp://host:0/a", "sftp://host:99999/a",
		"b2://bucket:1/prefix", "b2://buc.ket/prefix", "b2://bucket/a//b", "b2://bucket/../b", "b2://bucket/a%00b", "b2://bucket/a%0Ab",
		"b2://bucket/" + strings.Repeat("x", 251), "s3://bucket?region=eu%20central", "minio://host/bucket?region=eu%20central", "b2://bucket?region=x", "b2://bucket?a=%zz", "b2://bucket?endpoint=", "b2://bucket?endpoint=host",
		"b2://bucket?endpoint=ftp://host", "b2://bucket?endpoint=http://host", "b2://bucket?endpoint=http://127.0.0.1.example.co", "b2://bucket?endpoint=https://host/path",
	} {
		err := open.Check(raw)
		assert.That(t, errors.Is(err, store.ErrURL) && !strings.Contains(err.Error(), "topsecret"), "%q: %v", raw, err)
	}
}

func TestStoreErrors(t *testing.T) {
	missing := filepath.Join(t.TempDir(), "missing")
	for raw, want := range map[string]error{missing: store.ErrNotFound, "gs://bucket": store.ErrURL, "s3://bucket?no=such": store.ErrURL, "": store.ErrURL} {
		s, err := open.Store(t.Context(), raw)
		assert.That(t, s == nil && errors.Is(err, want), "%q: %v, %v", raw, s, err)
	}
	assert.Is(t, assert.Err(os.Lstat(missing)), os.ErrNotExist, "opening made a directory")
}

// TestSchemes: each example passes Parse and Check, and each backend has a contract test. A program can't
// change a scheme by the result of Schemes.
func TestSchemes(t *testing.T) {
	open.Schemes()[0] = open.Scheme{}
	for _, s := range open.Schemes() {
		example := strings.ReplaceAll(strings.ToLower(s.Example), ":port", ":9000")
		l, err := open.Parse(example)
		assert.That(t, err == nil && l.Scheme == s.Name, "%s: %+v, %v", s.Example, l, err)
		assert.Is(t, open.Check(example), nil, "%s", s.Example)
		backend := s.Name
		if backend == "file" {
			backend = "dir"
		}
		_, err = os.Stat(filepath.Join("..", backend, "contract_test.go"))
		assert.That(t, err == nil && s.Help != "", "%s: %q, %v", s.Name, s.Help, err)
	}
}

// TestPageHasTheSchemes: the table of docs/repositories.md has each scheme's example
// and variables, and no other scheme.
func TestPageHasTheSchemes(t *testing.T) {
	text, err := os.ReadFile("../../docs/repositories.md")
	assert.OK(t, err)
	table, _, end := strings.Cut(string(text), "\n## Directories\n")
	if !end {
		t.Fatal("there is no table of repositories")
	}
	var want []string
	for _, s := range open.Schemes() {
		want = append(want, s.Name)
		assert.That(t, strings.Contains(table, "`"+s.Example+"`"), "%s isn't there", s.Example)
		if variable, _, _ := strings.Cut(s.Environment, ","); s.Name != "s3" && !strings.Contains(table, variable) {
			t.Errorf("%s isn't there", variable)
		}
	}
	for _, m := range regexp.MustCompile("`([a-z0-9]+)://").FindAllStringSubmatch(table, -1) {
		assert.That(t, slices.Contains(want, m[1]), "there is no scheme %s", m[1])
	}
}
