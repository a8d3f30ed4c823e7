package open

import (
	"errors"
	"fmt"
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
		"x3:bucket": "x3", "X3://key:secret@host/bucket": "x3", "gopher://host": "gopher", "ldaps://host/repo": "ldaps",
	} {
		_, err := Parse(raw)
		if err == nil || !strings.Contains(err.Error(), `"`+scheme+`"`) || !strings.Contains(err.Error(), "known: file") {
			t.Errorf("%q: %v", raw, err)
		}
	}
}

// TestNamesOfOtherPrograms: a URL of restic is translated, or the error says where locks can be kept.
// No error shows what could be a secret.
func TestNamesOfOtherPrograms(t *testing.T) {
	for raw, says := range map[string]string{
		"s3:https://host:9000/bucket/a/b/":  "here it is s3://bucket/a/b?endpoint=https://host:9000",
		"s3:http://host/bucket":             "here it is s3://bucket?endpoint=http://host",
		"s3:s3.amazonaws.com/bucket":        "here it is s3://bucket",
		"s3:https://s3.amazonaws.com/b/p":   "here it is s3://b/p",
		"s3:localhost:9000/bucket":          "here it is s3://bucket?endpoint=https://localhost:9000",
		"s3:https://host":                   "it is written s3://BUCKET/PREFIX",
		"s3:bucket/prefix":                  "it is written s3://BUCKET/PREFIX",
		"s3:https://key:secret@host/bucket": "it is written s3://BUCKET/PREFIX",
		"b2:bucket:a/b":                     "here it is b2://bucket/a/b",
		"b2:bucket":                         "here it is b2://bucket",
		"b2:key:secret:bucket":              "it is written b2://BUCKET/PREFIX",
		"minio:host/bucket":                 "it is written minio://HOST:PORT/BUCKET/PREFIX",
		"sftp:key:secret@host:/srv":         "no locks in sftp",
		"rest:https://key:secret@host/":     "no locks in a REST server of restic",
		"GS://key:secret@host/bucket":       "no locks in Google Cloud Storage",
		"azure:container:/":                 "no locks in Azure",
		"rclone:remote:path":                "no remotes of rclone",
		"https://host/bucket":               "s3://BUCKET/PREFIX?endpoint=https://HOST",
	} {
		_, err := Parse(raw)
		if !errors.Is(err, store.ErrURL) || !strings.Contains(err.Error(), says) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: %v", raw, err)
		}
		if _, ours, ok := strings.Cut(fmt.Sprint(err), "here it is "); ok {
			if err := Check(ours); err != nil {
				t.Errorf("%q: %v", ours, err)
			}
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

// TestSlips: a URL that is probably another place than was meant is refused: a lock there would
// exclude no holder of the place that was meant.
func TestSlips(t *testing.T) {
	for raw, says := range map[string]string{
		"s3://bucket/p ":                                 "space",
		"s3://bucket/p ?region=x":                        "space",
		"s3://bucket/p?region=x ":                        "space",
		"minio://host/bucket/p\t":                        "isn't written as a URL",
		"s3://bucket/p&region=x":                         "first option",
		"b2://bucket/p&endpoint=https://h":               "first option",
		"s3://bucket/p?region=x?endpoint=https://h":      "second ?",
		"s3://bucket/a%20b%20":                           "",
		"s3://bucket/a b":                                "",
		"s3://bucket/p%26region=x":                       "",
		"s3://bucket/this&that":                          "",
		"s3://bucket/p?region=x&endpoint=https://h%3Fx":  "",
		"s3://bucket?profile=a%20b&region=eu-central-1":  "",
		"minio://host:9000/bucket/p?tls=false&alias=one": "",
	} {
		_, err := Parse(raw)
		if says == "" && err != nil || says != "" && (!errors.Is(err, store.ErrURL) || !strings.Contains(err.Error(), says)) {
			t.Errorf("%q: %v", raw, err)
		}
	}
}
