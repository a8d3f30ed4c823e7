package config

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

func file(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.toml")
	assert.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestLoad(t *testing.T) {
	got, err := Load(file(t, `
repo = "prod"
[defaults]
ttl = "2m"
held-exit-code = 0
metadata = {rack = "7"}
[repositories.prod]
url = "s3://bucket/prefix"
name = "photos"
wait = "15m"
[repositories."home.old"]
url = "/srv/home"
`))
	assert.OK(t, err)
	assert.Equal(t, got.Defaults.Values(), map[string]any{"ttl": "2m", "held-exit-code": int64(0), "metadata": map[string]any{"rack": "7"}})
	prod := got.Repositories["prod"]
	assert.Equal(t, prod.Flags.Values(), map[string]any{"wait": "15m"})
	assert.That(t, prod.URL == "s3://bucket/prefix" && prod.Name == "photos", "%+v", prod)
	assert.That(t, got.Repo == "prod" && len(got.Repositories) == 2 && got.Repositories["home.old"].URL == "/srv/home", "%+v", got)
}

// TestPutHeaders: the keys of headers are parameters of the URL, whether it has others or not.
func TestPutHeaders(t *testing.T) {
	got, err := Load(file(t, `
[repositories.a]
url = "s3://b/p"
sse = "AES256"
[repositories.b]
url = "minio://h/b?tls=false"
sse = "aws:kms"
sse-key = "arn:aws:kms:eu-west-1:1:key/2&3"
acl = "bucket-owner-full-control"
`))
	assert.OK(t, err)
	assert.Equal(t, got.Repositories["a"].URL, "s3://b/p?sse=AES256")
	assert.Equal(t, got.Repositories["b"].URL, "minio://h/b?tls=false&sse=aws%3Akms&sse-key=arn%3Aaws%3Akms%3Aeu-west-1%3A1%3Akey%2F2%263&acl=bucket-owner-full-control")
}

// TestLoadErrors: Load refuses a line that it doesn't understand. The error has its place, and
// shows no value.
func TestLoadErrors(t *testing.T) {
	for text, says := range map[string]string{
		"tll = '2m'":                               `config.toml:1: unknown key "tll"`,
		"[locking]\nbackend = 'redis'":             `config.toml:1: unknown key "locking": a lock of another system is named on the command line, as --also 'redis://HOST/0?key=KEY'`,
		"[locking.redis]\nurl = 'x'":               `config.toml:1: unknown key "locking": a lock`,
		"ttl = '2m'":                               `config.toml:1: unknown key "ttl"`,
		"[defaults]\n\nname = 'x'":                 `config.toml:3: unknown key "defaults.name"`,
		"[defaults]\nhint = 'node-local'":          `config.toml:2: unknown key "defaults.hint"`,
		"[repositories.a]\nURL = '/x'":             `config.toml:2: unknown key "repositories.a.URL": keys are in lower case`,
		"[repositories.a]\nurl='/x'\nUrl='/y'":     `config.toml:3: unknown key "repositories.a.Url": keys are in lower case`,
		"[defaults]\nTTL = '1m'":                   `config.toml:2: unknown key "defaults.TTL": keys are in lower case`,
		"[Defaults]\nttl = '1m'":                   `config.toml:1: unknown key "Defaults": keys are in lower case`,
		"[repository.a]\nurl = '/x'":               `config.toml:1: unknown key "repository.a"`,
		"[defaults]\nttl = 120":                    `config.toml:2:7: "defaults.ttl": must be a text in quotes`,
		"[defaults]\nheld-exit-code = '1'":         `config.toml:2:18: "defaults.held-exit-code": must be a whole number`,
		"[defaults]\nttl.x = 99999999999999999999": `"defaults.ttl.x": must be a text in quotes`,
		"[defaults]\nmetadata = 'x'":               `config.toml:2:12: "defaults.metadata": must be a table`,
		"[defaults]\nmetadata = {x = 1}":           `"defaults.metadata": must be a text in quotes`,
		"[defaults.metadata]\nx = 1":               `config.toml:2:5: "defaults.metadata.x": must be a text in quotes`,
		"[repositories]\na = '/x'":                 `config.toml:2:5: "repositories.a": must be a table`,
		"[[repositories]]\nurl = '/x'":             `config.toml:1:3: "repositories": must be a table`,
		"repo = 'x'\nrepo = 'y'":                   `config.toml:2:1: "repo": key repo is already defined`,
		"repo = topsecret":                         `config.toml:1:8: expected keyword`,
		"repo = \"topsecret":                       `config.toml:1:17: unterminated`,
		"repo topsecret":                           `config.toml:1:6: expected '='`,
		"[repositories.a]\nurl = '/x'\nsecret_access_key = 'topsecret'": `config.toml:3: "repositories.a.secret_access_key": credentials don't belong in this file`,
		"[defaults]\npassword-file = 'topsecret'":                       `config.toml:2: "defaults.password-file": credentials don't belong`,
		"[defaults]\nttl = ['topsecret']":                               `config.toml:2:7: "defaults.ttl": must be a text`,
		"\ufeffrepo = '/x'":                                             "begins with a byte order mark",
		strings.Repeat("#", maxSize+1):                                  "larger than a configuration file",
	} {
		_, err := Load(file(t, text))
		assert.That(t, err != nil && strings.Contains(err.Error(), says), "%.60q: %v, want %s", text, err, says)
		assert.That(t, err == nil || !strings.Contains(err.Error(), "topsecret") && !strings.Contains(err.Error(), "\n"), "%q: shows it: %v", text, err)
	}
	assert.Is(t, assert.Err(Load(filepath.Join(t.TempDir(), "missing"))), fs.ErrNotExist)
	assert.That(t, assert.Err(Load(t.TempDir())) != nil, "a directory was read")
	assert.That(t, assert.Err(Load("/proc/self/mem")) != nil, "a file that can be opened, and not read, counts as empty")
}

func TestSecret(t *testing.T) {
	for name, want := range map[string]bool{
		"secret_access_key": true, "AWS_SESSION_TOKEN": true, "password": true, "b2-application-key": true, "apiKey": true,
		"credentials": true, "private": true, "rack": false, "keyboard": false, "ttl": false,
	} {
		assert.That(t, Secret(name) == want, "%s: %v", name, !want)
	}
}
