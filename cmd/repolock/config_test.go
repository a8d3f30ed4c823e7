package main

import (
	"io"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/repolock/repolock/internal/config"
	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/replock"
)

// configured writes a configuration file, and makes it the one that repolock reads.
func configured(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	write(t, path, text)
	t.Setenv("REPOLOCK_CONFIG", path)
	return path
}

// TestBadConfiguration: a bad file is refused with 78, whichever part of it is used. The
// message has the file, the key and the allowed values, and no secret.
func TestBadConfiguration(t *testing.T) {
	dir := t.TempDir()
	for text, says := range map[string]string{
		"[defaults]\nttl = '5s'":                                          "config.toml:2: [defaults] ttl 5s: must be from 10s to 24h",
		"[defaults]\nttl = 'soon'":                                        "[defaults] ttl soon: must be a time",
		"[defaults]\nwait = '-1s'":                                        "[defaults] wait -1s: must not be negative",
		"[defaults]\nwait = 'long'":                                       "or forever",
		"[defaults]\nresume-for = '-1s'":                                  "resume-for -1s: must not be negative",
		"[defaults]\non-lost = 'hope'":                                    `on-lost hope: must be one of pause, term, kill, warn`,
		"[defaults]\nif-held = 'hope'":                                    `if-held hope: must be fail or skip; waiting`,
		"[defaults]\nif-held = 'wait'":                                    `if-held wait: must be fail or skip; waiting is wait = "forever"`,
		"[defaults]\nif-unreachable = 'hope'":                             `if-unreachable hope: must be one of`,
		"[defaults]\nheld-exit-code = 256":                                "held-exit-code 256: must be from 0 to 255",
		"[defaults]\naudit = 'here.jsonl'":                                `config.toml:2: [defaults] audit "here.jsonl": must be an absolute path`,
		"[defaults]\nmetrics-file = '~/x'":                                `metrics-file "~/x": must be an absolute path`,
		"[defaults.metadata]\nApi_Key = 'secret'":                         `metadata "Api_Key": other users can read it`,
		"repo = 'prod'":                                                   `config.toml:1: repo "prod": the file has no repository of that name; it has: none`,
		"repo = './prod'":                                                 "config.toml:1: repo: must be a URL or an absolute path",
		"repo = 's3://k:secret@bucket'":                                   "repo: invalid repository URL: s3: credentials don't belong",
		"[repositories.'a b']\nurl = '/x'":                                `[repositories."a b"] a repository's name has letters`,
		"[repositories.'s3:x']\nurl = '/x'":                               "a repository's name has letters",
		"[repositories.a]\nname = 'x'":                                    `config.toml:1: [repositories."a"] url: is missing`,
		"[repositories.a]\nurl = 'x'":                                     `config.toml:2: [repositories."a"] url: must be a URL or an absolute path`,
		"[repositories.a]\nurl = '~/x'":                                   "url: must be a URL or an absolute path",
		"[repositories.a]\nurl = 'x3://x'":                                `unknown scheme "x3"`,
		"[repositories.a]\nurl = '/x'\nname = 'A'":                        `config.toml:3: [repositories."a"] lock name "A"`,
		"[repositories.a]\nurl = '/x'\nttl = '1s'":                        `[repositories."a"] ttl 1s: must be from 10s`,
		"[repositories.a]\nurl = 's3://b?secret_access_key=secret'":       "unknown parameter",
		"[repositories.a]\nurl = 's3://b?endpoint=https://k:secret@host'": "credentials don't belong in an endpoint",
		"[repositories.a]\nurl = '/x'\nacl = 'private'":                   `config.toml:2: [repositories."a"] sse, sse-key and acl need an s3: or a minio: URL`,
		"[repositories.a]\nurl = 'b2://b'\nsse = 'AES256'":                "need an s3: or a minio: URL",
		"[repositories.a]\nurl = 's3://b'\nsse = 'aes'":                   "sse= is AES256",
		"[repositories.a]\nurl = 's3://b?sse=AES256'\nsse = 'AES256'":     "sse= is there twice",
		"[repositories.a]\nurl = 'b2://b?secret'":                         "unknown parameter",
		"[repositories.a]\nurl = '/x'\npassword = 'secret'":               "credentials don't belong in this file",
		"[repositories.a]\nurl = 'file://u:secret@localhost/x'":           "file:///",
	} {
		path := configured(t, text)
		for _, args := range [][]string{{"repos"}, {"-r", dir, "backup", "--", "touch", filepath.Join(dir, "ran")}} {
			code, stdout, stderr := call(args...)
			assert.That(t, code == fault.ExitUnfit && stdout == "", "%q: exit code %d: %s", text, code, stdout)
			// The message itself uses this word for a hidden value.
			isOneError(t, false, strings.NewReplacer("a secret", "", "secret_access_key", "").Replace(stderr), says)
			assert.That(t, strings.Contains(stderr, path), "%q: doesn't name the file: %s", text, stderr)
		}
	}
	entries, err := os.ReadDir(dir)
	assert.That(t, err == nil && len(entries) == 0, "it ran %v %v", entries, err)
}

// fileKeys are the flags that the file can set.
func fileKeys() (keys []string) {
	fields := reflect.TypeFor[config.Flags]()
	for i := range fields.NumField() {
		keys = append(keys, fields.Field(i).Tag.Get("toml"))
	}
	return keys
}

// TestConfigTags: the file can set exactly the flags that are tagged for it, and each of them
// works.
func TestConfigTags(t *testing.T) {
	for _, node := range reader.Model().Children {
		var tagged []string
		for _, f := range node.Flags {
			if f.Tag.Has("config") {
				tagged = append(tagged, f.Name)
			}
		}
		var want []string
		switch node.Name {
		case unnamed:
			want = slices.Sorted(slices.Values(fileKeys()))
		case "backup", "restore", "prune", "run":
			want = slices.Sorted(slices.Values(fileKeys()))
			want = slices.DeleteFunc(want, func(key string) bool { return key == "no-unlock" }) // of a program's line
		case "acquire": // its --on-lost has other values
			want = []string{"audit", "beside", "held-exit-code", "look", "metadata", "metrics-file", "ttl", "wait"}
		case "break-lock":
			want = []string{"audit"}
		}
		slices.Sort(tagged)
		assert.Equal(t, cmp.Diff(want, tagged), "", node.Name)
	}
}

// TestConfiguredFlags: each value of the file reaches its flag.
func TestConfiguredFlags(t *testing.T) {
	configured(t, `
[repositories.a]
url = "/x"
name = "n"
ttl = "3m"
look = "5s"
wait = "forever"
if-held = "skip"
if-unreachable = "run"
on-lost = "term"
beside = "nobody"
resume-for = "7m"
audit = "/a"
metrics-file = "/m"
held-exit-code = 3
metadata = {"a;b" = "c=d"}
`)
	p, err := reader.Parse([]string{"-r", "a", "backup", "--", "x"}, io.Discard, io.Discard)
	assert.OK(t, err)
	want := wrapCmd{
		mode: replock.Shared, operation: "backup", word: "backup", OnLost: "term", ResumeFor: 7 * 60e9, Command: []string{"--", "x"},
		lockFlags: lockFlags{TTL: 3 * 60e9, Look: 5e9, HeldCode: 3, Metadata: map[string]string{"a;b": "c=d"}, Audit: "/a", Metrics: "/m", Beside: "nobody"},
	}
	want.Wait, want.IfHeld, want.IfUnreachable = 1<<63-1, "skip", "run"
	diff := cmp.Diff(want, p.Selected.Target.Interface().(wrapCmd), cmp.AllowUnexported(wrapCmd{}))
	assert.That(t, diff == "" && p.Name == "n", "%s name %q", diff, p.Name)
}
