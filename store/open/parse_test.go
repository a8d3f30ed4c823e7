package open

import (
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
)

// TestParse: a path stands for itself, and a URL of a directory is decoded.
func TestParse(t *testing.T) {
	for raw, want := range map[string]string{
		"/srv/repo": "", "repo": "", ".": "", "./a:b": "", "/a:b": "", "a b:c": "", "1:2": "", ":x": "", "a_b:c": "", "user@host:/path": "",
		" with spaces ": "", "/100%": "", "/a%20b?c#d": "", "\xff": "", // these stand for themselves

		"file:///srv/repo":          "/srv/repo",
		"file:/srv/repo":            "/srv/repo",
		"FILE:///srv/repo":          "/srv/repo",
		"file://localhost/srv/repo": "/srv/repo",
		"file://LocalHost/":         "/",
		"file:///a%20b%3Fc%23d%25":  "/a b?c#d%",
		"file:///a+b":               "/a+b",
		"file:///a:b":               "/a:b",
	} {
		if want == "" {
			want = raw
		}
		got, err := parse(raw, false)
		assert.That(t, err == nil && filepath.ToSlash(got.Path) == want && got.Scheme == "file" && got.URL == nil,
			"%q: got %+v, %v", raw, got, err)
	}
	for _, raw := range []string{
		"s3://bucket", "s3://bucket/a/b?region=eu-west-1", "minio://host:9000/bucket/a%20b", "minio://[::1]:9000/bucket", "b2://bucket/prefix",
		"s3://bucket/a%20b%20", "s3://bucket/p%26region=x", "s3://bucket/this&that", "s3://bucket/p?region=x&endpoint=https://h%3Fx",
		"s3://tenant:bucket/p", "s3://:bucket", "s3://tenant:2026-b?region=x", "sftp://host/p?command=a;b", "sftp://[fe80::1%25eth0]/p",
		"s3://bucket?profile=a%20b&region=eu-central-1", "minio://host:9000/bucket/p?tls=false&alias=one",
	} {
		scheme, rest, _ := strings.Cut(raw, ":")
		for _, scheme := range []string{scheme, strings.ToUpper(scheme)} {
			got, err := Parse(scheme + ":" + rest)
			assert.OK(t, err)
			assert.Equal(t, got.URL.String(), raw)
			assert.That(t, got.Scheme == got.URL.Scheme && got.Path == "", "%q: got %+v", raw, got)
		}
	}
	got, err := Parse("s3://tenant%3abucket/p")
	assert.That(t, err == nil && got.URL.Host == "tenant:bucket" && got.URL.Path == "/p", "an escaped colon: %+v, %v", got, err)
	assert.Says(t, assert.Err(Parse("minio://[fe80::1%eth0]:9000/bucket")), store.ErrURL, "%25 belongs before the zone")
	got, err = Parse("s3://bucket/a b")
	assert.That(t, err == nil && got.URL.Path == "/a b", "a space within: %+v, %v", got, err)
}

// TestPorts: a number after a host is its port, and no bucket of Ceph's.
func TestPorts(t *testing.T) {
	got, err := Parse("s3://host:9000/bucket")
	assert.That(t, err == nil && got.URL.Port() == "9000", "%+v, %v", got, err)
	assert.Says(t, Check("s3://host:9000/bucket"), store.ErrURL, "a server's address goes into endpoint=")
	assert.Is(t, assert.Err(Parse("s3://a.host:bucket")), store.ErrURL)
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
		assert.That(t, err == nil && (got.Path == want || got.Path == filepath.FromSlash(want)), "%q: got %+v, %v", raw, got, err)
	}
	assert.Is(t, assert.Err(parse("x3://bucket", true)), store.ErrURL)
}

// TestParseErrors: an error names the mistake, and shows no text that could be a secret. For a URL of
// restic's it shows ours, or where locks can be kept. A URL with a probable slip of the pen is refused,
// because a lock in the wrong place excludes no other holder.
func TestParseErrors(t *testing.T) {
	for raw, says := range map[string]string{
		"": "empty", "a\x00b": "NUL", "secret\x00": "NUL",

		"file:": "absolute", "file:rel": "absolute", "file:secret": "absolute", "file://": "absolute", "file://localhost": "absolute",
		"file://host/path": "file:///", "file://user:secret@localhost/path": "file:///", "file://secret@localhost/path": "file:///",
		"file:///a?b": "no query", "file:///a#b": "no query", "file:///x?key=secret": "no query",
		"file:///a%0": "percent sign", "file:///a%zz": "percent sign", "file:///secret%zz": "percent sign", "file:///a%00b": "NUL", "file:///secret%00": "NUL",

		"a:b": "./a:b", `C:\repo`: "Windows", "x3:bucket": `"x3" (known: file`, "X3://key:secret@host/bucket": `"x3" (known: file`,
		"S3//key:secret@bucket": "the colon after s3 is missing", "minio;//host/bucket?key=secret": "the colon after minio is missing",
		"s3//key:sec/secret@bucket": "the colon after s3 is missing", " s3://key:secret@bucket": "a space or a quote is before s3",
		`"S3://key:sec/secret@bucket/p"`: "a space or a quote is before s3", "'minio://host/bucket?key=secret'": "a space or a quote is before minio",
		"gopher://host": `"gopher" (known: file`, "ldaps://host/repo": `"ldaps" (known: file`, "secret:secret@host/bucket": "known: file",

		"s3:bucket": "s3://BUCKET", "s3:/bucket": "s3://BUCKET", "s3:": "s3://BUCKET", "s3:secret@secret": "s3://BUCKET",
		"s3://": "nothing between", "s3:///prefix": "nothing between",
		"s3://key:secret@bucket/prefix": "credentials don't belong", "s3://secret@bucket/prefix": "credentials don't belong",
		"s3://bucket/prefix#x": "fragment", "b2://bucket#secret": "fragment",
		"s3://bucket/%zz": "it isn't a URL", "s3://bucket/secret%zz": "it isn't a URL", "minio://host:port/bucket": "it isn't a URL",
		"s3://arn:aws:s3:eu-central-1:123456789012:accesspoint/name/p": "an access point by its ARN", "s3://arn:aws:s3:::bucket/p": "the bucket's name alone",

		"s3://bucket/p ": "space", "s3://bucket/p ?region=x": "space", "s3://bucket/p?region=x ": "space", "minio://host/bucket/p\t": "it isn't a URL",
		"s3://bucket/p&region=x": "first option", "b2://bucket/p&endpoint=https://h": "first option", "s3://bucket/p?region=x?endpoint=https://h": "second ?",

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
		"sftp:key:secret@host:/srv":         "it is written sftp://USER@HOST:PORT/PATH",
		"sftp://key:secret@host/srv":        "a password doesn't belong",
		"sftp:user@host:/srv/a":             "here it is sftp://user@host//srv/a",
		"sftp:host:a/b":                     "here it is sftp://host/a/b",
		"sftp:host:~/a":                     "here it is sftp://host/a",
		"sftp:host":                         "it is written sftp://USER@HOST:PORT/PATH",
		"ssh://user@host:22/srv/a":          "here it is sftp://user@host:22//srv/a",
		"ssh://user@host/./a":               "here it is sftp://user@host/a",
		"ssh://key:secret@host/./a":         "is written sftp://USER@HOST:PORT/PATH",
		"rest:https://key:secret@host/":     "no locks in a REST server of restic",
		"GS://key:secret@host/bucket":       "no locks in Google Cloud Storage",
		"azure:container:/":                 "no locks in Azure: name a bucket on S3, MinIO or B2, a directory on an SSH server, or one",
		"rclone:remote:path":                "rclone's remotes",
		"https://host/bucket":               "s3://BUCKET/PREFIX?endpoint=https://HOST",
	} {
		_, err := Parse(raw)
		assert.Says(t, err, store.ErrURL, says, "%q", raw)
		assert.That(t, !strings.Contains(fmt.Sprint(err), "secret"), "%q: %v", raw, err)
		if _, ours, ok := strings.Cut(fmt.Sprint(err), "here it is "); ok {
			assert.Is(t, Check(ours), nil, "%q", ours)
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
			if got.URL.Host == "" || got.URL.User != nil && got.Scheme != "sftp" || got.URL.Scheme != got.Scheme || got.Path != "" {
				t.Fatalf("%q: %+v", raw, got)
			}
			return
		}
		if got.Scheme != "file" || got.Path == "" || strings.ContainsRune(got.Path, 0) {
			t.Fatalf("%q: %+v", raw, got)
		}
		// A path is either unchanged, or it is absolute and comes from a file URL.
		if got.Path != raw && (!strings.EqualFold(raw[:5], "file:") || !windows && !strings.HasPrefix(filepath.ToSlash(got.Path), "/")) {
			t.Fatalf("%q: %+v", raw, got)
		}
	})
}
