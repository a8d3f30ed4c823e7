package open

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
)

func TestParse(t *testing.T) {
	for _, test := range []struct {
		raw  string
		want string // "" for an error
	}{
		{"/srv/repo", "/srv/repo"},
		{"repo", "repo"},
		{".", "."},
		{"./a:b", "./a:b"},
		{"/a:b", "/a:b"},
		{"a b:c", "a b:c"},
		{"1:2", "1:2"},
		{":x", ":x"},
		{"a_b:c", "a_b:c"},
		{"user@host:/path", "user@host:/path"},
		{" with spaces ", " with spaces "},
		{"/100%", "/100%"},
		{"/a%20b?c#d", "/a%20b?c#d"},
		{"\xff", "\xff"},

		{"file:///srv/repo", "/srv/repo"},
		{"file:/srv/repo", "/srv/repo"},
		{"FILE:///srv/repo", "/srv/repo"},
		{"file://localhost/srv/repo", "/srv/repo"},
		{"file://LocalHost/", "/"},
		{"file:///a%20b%3Fc%23d%25", "/a b?c#d%"},
		{"file:///a+b", "/a+b"},
		{"file:///a:b", "/a:b"},

		{"", ""},
		{"a\x00b", ""},
		{"file:", ""},
		{"file:rel", ""},
		{"file://", ""},
		{"file://localhost", ""},
		{"file://host/path", ""},
		{"file://user:secret@localhost/path", ""},
		{"file:///a?b", ""},
		{"file:///a#b", ""},
		{"file:///a%0", ""},
		{"file:///a%zz", ""},
		{"file:///a%00b", ""},
		{"a:b", ""},
		{`C:\repo`, ""},
	} {
		got, err := parse(test.raw, false)
		if test.want == "" {
			if !errors.Is(err, store.ErrURL) {
				t.Errorf("%q: got %+v, %v", test.raw, got, err)
			}
			continue
		}
		if want := (Location{Scheme: "file", Path: test.want}); err != nil || filepath.ToSlash(got.Path) != want.Path || got.Scheme != want.Scheme {
			t.Errorf("%q: got %+v, %v", test.raw, got, err)
		}
	}
}

func TestParseOnWindows(t *testing.T) {
	for raw, want := range map[string]string{
		`C:\repo`:             `C:\repo`,
		`c:/repo`:             `c:/repo`,
		`C:repo`:              `C:repo`,
		`\\server\share\repo`: `\\server\share\repo`,
		"file:///C:/a%20repo": "C:/a repo",
		"file:///repo":        "/repo",
	} {
		got, err := parse(raw, true)
		if err != nil || got.Path != want && got.Path != filepath.FromSlash(want) {
			t.Errorf("%q: got %+v, %v", raw, got, err)
		}
	}
	if _, err := parse("x3://bucket", true); !errors.Is(err, store.ErrURL) {
		t.Error(err)
	}
}

func TestErrorsNameTheScheme(t *testing.T) {
	for raw, scheme := range map[string]string{
		"gs:bucket": "gs", "GS://key:secret@host/bucket": "gs", "sftp://host": "sftp", "https://host/repo": "https",
	} {
		_, err := Parse(raw)
		if err == nil || !strings.Contains(err.Error(), `"`+scheme+`"`) || !strings.Contains(err.Error(), "known: file") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func TestParseBucket(t *testing.T) {
	for _, test := range []struct {
		raw  string
		want string // "" for an error
	}{
		{"s3://bucket", "s3://bucket"},
		{"S3://bucket/a/b?region=eu-west-1", "s3://bucket/a/b?region=eu-west-1"},
		{"minio://host:9000/bucket/a%20b", "minio://host:9000/bucket/a%20b"},
		{"minio://[::1]:9000/bucket", "minio://[::1]:9000/bucket"},
		{"b2://bucket/prefix", "b2://bucket/prefix"},
		{"s3:bucket", ""},
		{"s3:/bucket", ""},
		{"s3:", ""},
		{"s3://", ""},
		{"s3:///prefix", ""},
		{"s3://key:secret@bucket/prefix", ""},
		{"s3://key@bucket/prefix", ""},
		{"s3://bucket/prefix#x", ""},
		{"s3://bucket/%zz", ""},
		{"minio://host:port/bucket", ""},
	} {
		got, err := Parse(test.raw)
		if test.want == "" {
			if !errors.Is(err, store.ErrURL) || got.URL != nil {
				t.Errorf("%q: got %+v, %v", test.raw, got, err)
			}
			continue
		}
		if err != nil || got.URL.String() != test.want || got.Scheme != got.URL.Scheme || got.Path != "" {
			t.Errorf("%q: got %+v, %v", test.raw, got, err)
		}
	}
}

func TestErrorsKeepSecrets(t *testing.T) {
	for _, raw := range []string{
		"s3://topsecret:topsecret@host/topsecret", "s3://bucket/topsecret%zz", "b2://bucket#topsecret", "topsecret:topsecret@host/bucket", "s3:topsecret@topsecret",
		"file://topsecret:topsecret@host/path", "file://topsecret@localhost/path", "file:topsecret", "file:///x?key=topsecret",
		"file:///topsecret%zz", "file:///topsecret%00", "topsecret\x00",
	} {
		_, err := Parse(raw)
		if err == nil || strings.Contains(err.Error(), "topsecret") || strings.Contains(err.Error(), "\n") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

func FuzzParse(f *testing.F) {
	for _, seed := range []string{
		"", "/srv/repo", "./a:b", "a:b", "file:///a%20b", "file://host/x", "file:rel", "file:///%00", "file://localhost/%",
		`C:\repo`, "s3://bucket/a?region=x", "minio://host:1/b", "b2://x", "s3://key:secret@host/bucket?x#y", "user:pw@host", "\x00", "\xff:\xff", "file:///C:/x",
	} {
		f.Add(seed, false)
		f.Add(seed, true)
	}
	f.Fuzz(func(t *testing.T, raw string, windows bool) {
		got, err := parse(raw, windows)
		if err != nil {
			if !errors.Is(err, store.ErrURL) || strings.ContainsAny(err.Error(), "\n\x00") || got.Path != "" {
				t.Fatalf("%q: %+v, %v", raw, got, err)
			}
			return
		}
		if got.URL != nil {
			if got.URL.Host == "" || got.URL.User != nil || got.URL.Scheme != got.Scheme || got.Path != "" {
				t.Fatalf("%q: %+v", raw, got)
			}
			return
		}
		if got.Scheme != "file" || got.Path == "" || strings.ContainsRune(got.Path, 0) {
			t.Fatalf("%q: %+v", raw, got)
		}
		// A path is either unchanged, or was in a file URL and is absolute.
		if got.Path != raw && (!strings.EqualFold(raw[:5], "file:") || !windows && !strings.HasPrefix(filepath.ToSlash(got.Path), "/")) {
			t.Fatalf("%q: %+v", raw, got)
		}
	})
}
