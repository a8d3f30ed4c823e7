package minio_test

import (
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/fakes3"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/storetest"
)

// inSeconds is a server's clock. Last-Modified has only seconds.
func inSeconds() time.Time { return time.Now().Truncate(time.Second) }

// alone makes a home without files of credentials, and an environment without them.
func alone(t *testing.T) (home string) {
	home = t.TempDir()
	for _, name := range []string{"MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD", "MINIO_ACCESS_KEY", "MINIO_SECRET_KEY", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ACCESS_KEY", "AWS_SECRET_KEY", "MC_CONFIG_DIR", "MC_HOST_a", "AWS_SHARED_CREDENTIALS_FILE", "MINIO_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"} {
		t.Setenv(name, "")
		os.Unsetenv(name)
	}
	t.Setenv("HOME", home)
	return home
}

func open(t *testing.T, raw string) store.Store {
	t.Helper()
	u, err := url.Parse(raw)
	assert.OK(t, err)
	assert.OK(t, minio.Check(u))
	s, err := minio.Open(t.Context(), u)
	assert.OK(t, err)
	return s
}

// TestContractOfAFake: the store keeps its contract on a server in this process. TestContract does the same on MinIO.
func TestContractOfAFake(t *testing.T) {
	alone(t)
	t.Setenv("MINIO_ACCESS_KEY", "key")
	t.Setenv("MINIO_SECRET_KEY", "secret")
	var address string
	storetest.Run(t, storetest.Config{
		New: func(t *testing.T) store.Store {
			server := httptest.NewTLSServer(fakes3.NewAt("bucket", inSeconds))
			t.Cleanup(server.Close)
			bundle := filepath.Join(t.TempDir(), "ca.pem")
			assert.OK(t, os.WriteFile(bundle, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600))
			t.Setenv("AWS_CA_BUNDLE", bundle)
			address = strings.Replace(server.URL, "https", "minio", 1) + "/bucket/a/prefix?conditions=kept"
			return open(t, address)
		},
		Reopen: func(t *testing.T, _ store.Store) store.Store { return open(t, address) },
		Light:  true,
	})
}

// TestCheck: what a URL must be, and what a message says that it isn't.
func TestCheck(t *testing.T) {
	for raw, want := range map[string]string{
		"minio://h/bucket": "", "minio://h:9000/bucket/a/b/": "", "minio://h/bucket?tls=false&region=eu-west-1&alias=a&conditions=none": "",
		"minio://h":                         "minio://HOST:PORT/BUCKET/PREFIX",
		"minio://h/":                        "minio://HOST:PORT/BUCKET/PREFIX",
		"minio://h:99999/bucket":            "port",
		"minio://h/B":                       "can't be a bucket's name",
		"minio://h/bucket/a//b":             "prefix",
		"minio://h/bucket?another=1":        "another",
		"minio://h/bucket?tls=maybe":        "tls",
		"minio://h/bucket?conditions=maybe": "conditions",
		"minio://h/bucket?region=a/b":       "region",
	} {
		u, err := url.Parse(raw)
		assert.OK(t, err)
		err = minio.Check(u)
		_, operr := minio.Open(t.Context(), u)
		assert.That(t, (want == "") == (err == nil) && (want == "") == (operr == nil), "%s: %v, %v", raw, err, operr)
		assert.That(t, err == nil || errors.Is(err, store.ErrURL) && errors.Is(operr, store.ErrURL) && (strings.Contains(err.Error(), want) || want == "prefix"), "%s: %v", raw, err)
	}
}

// TestConfigured: New takes a client only if Configure has set it up. Configure keeps the client's own transport and
// region.
func TestConfigured(t *testing.T) {
	opts := func() *miniogo.Options { return &miniogo.Options{Creds: credentials.NewStaticV4("key", "secret", "")} }
	for name, c := range map[string]struct {
		set  func(*miniogo.Options)
		want error
	}{
		"not configured":       {func(*miniogo.Options) {}, store.ErrConfig},
		"configured":           {minio.Configure, nil},
		"configured twice":     {func(o *miniogo.Options) { minio.Configure(o); minio.Configure(o) }, nil},
		"an own transport":     {func(o *miniogo.Options) { o.Transport = &http.Transport{}; minio.Configure(o) }, nil},
		"a transport about it": {func(o *miniogo.Options) { minio.Configure(o); o.Transport = around{o.Transport} }, store.ErrConfig},
	} {
		o := opts()
		c.set(o)
		client, err := miniogo.New("h:9000", o)
		assert.OK(t, err)
		_, err = minio.New(client, "bucket", minio.Options{})
		assert.That(t, errors.Is(err, c.want), "%s: %v", name, err)
		_, err = minio.New(client, "", minio.Options{})
		assert.That(t, err != nil, "%s: no bucket", name)
	}
	o := opts()
	o.Region = "eu-west-1"
	minio.Configure(o)
	watched := o.Transport
	minio.Configure(o)
	assert.That(t, o.Region == "eu-west-1" && o.Transport == watched && o.MaxRetries == 1, "%+v", o)
}

type around struct{ http.RoundTripper }

// signedWith opens a URL, and returns the access key with which its first request is signed, and the session token after
// a blank, or the error.
func signedWith(t *testing.T, query string) (key string, err error) {
	t.Helper()
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, after, _ := strings.Cut(r.Header.Get("Authorization"), "Credential=")
		key, _, _ = strings.Cut(after, "/")
		key = strings.TrimSpace(key + " " + r.Header.Get("X-Amz-Security-Token"))
		w.WriteHeader(http.StatusForbidden)
	}))
	defer server.Close()
	u, err := url.Parse(strings.Replace(server.URL, "http", "minio", 1) + "/bucket?tls=false" + query)
	assert.OK(t, err)
	s, err := minio.Open(t.Context(), u)
	if err != nil {
		return "", err
	}
	_, err = s.List(t.Context(), "", "")
	return key, err
}

// TestAliases: the credentials of an alias come from the environment or from mc's file, whose damage is reported.
func TestAliases(t *testing.T) {
	home := alone(t)
	write := func(name, text string) {
		assert.OK(t, os.MkdirAll(filepath.Dir(name), 0o700))
		assert.OK(t, os.WriteFile(name, []byte(text), 0o600))
	}
	refused := func(words string) {
		t.Helper()
		key, err := signedWith(t, "&alias=a")
		assert.That(t, key == "" && err != nil && strings.Contains(err.Error(), words), "%q, %v", key, err)
	}
	signed := func(query, want string) {
		t.Helper()
		key, err := signedWith(t, query)
		assert.That(t, key == want, "signed with %q, want %q: %v", key, want, err)
	}
	file := filepath.Join(home, ".mc", "config.json")
	refused("a")
	write(file, "{")
	refused(file)
	write(file, `{"aliases":{"b":{"accessKey":"k","secretKey":"secret12"}}}`)
	refused("a")
	write(file, `{"aliases":{"a":{"accessKey":"","secretKey":"secret12"}}}`)
	refused("a")
	write(file, `{"aliases":{"a":{"accessKey":"k","secretKey":""}}}`)
	refused("a")
	write(file, `{"aliases":{"a":{"accessKey":"ofmc","secretKey":"secret12"}}}`)
	signed("&alias=a", "ofmc")
	t.Setenv("MC_CONFIG_DIR", filepath.Join(home, "other"))
	refused("a")
	write(filepath.Join(home, "other", "config.json"), `{"aliases":{"a":{"accessKey":"ofdir","secretKey":"secret12"}}}`)
	signed("&alias=a", "ofdir")
	t.Setenv("MC_HOST_a", "https://ofenv:secret12@h:9000")
	signed("&alias=a", "ofenv")
	t.Setenv("MC_HOST_a", "https://ofenv:secret12:token@h:9000")
	signed("&alias=a", "ofenv token")
	t.Setenv("MC_HOST_a", "no URL")
	refused("MC_HOST_a")
	t.Setenv("MC_HOST_a", "https://h:9000")
	refused("MC_HOST_a")
	t.Setenv("MINIO_ACCESS_KEY", "own")
	t.Setenv("MINIO_SECRET_KEY", "secret12")
	signed("", "own")
	damaged := filepath.Join(home, "text")
	write(damaged, "no certificate")
	for _, bundle := range []string{filepath.Join(home, "none"), damaged} {
		t.Setenv("AWS_CA_BUNDLE", bundle)
		_, err := signedWith(t, "")
		assert.That(t, errors.Is(err, store.ErrConfig) && strings.Contains(err.Error(), "AWS_CA_BUNDLE"), "%v", err)
	}
	t.Setenv("AWS_CA_BUNDLE", "")
	t.Setenv("MINIO_SHARED_CREDENTIALS_FILE", filepath.Join(home, "huge"))
	write(filepath.Join(home, "huge"), strings.Repeat(" ", 16<<20)+"{}")
	os.Unsetenv("MC_HOST_a")
	refused("larger than")
	write(filepath.Join(home, "huge"), `{"hosts":{"a":{"accessKey":"ofhosts","secretKey":"secret12"}}}`)
	signed("&alias=a", "ofhosts")
	os.Unsetenv("MINIO_ACCESS_KEY")
	t.Setenv("MINIO_SHARED_CREDENTIALS_FILE", filepath.Join(home, "none"))
	write(filepath.Join(home, ".mc", "certs", "CAs"), "a file in the place of a directory")
	t.Setenv("MC_CONFIG_DIR", "")
	_, err := signedWith(t, "")
	assert.That(t, errors.Is(err, store.ErrConfig) && strings.Contains(err.Error(), "certificates of mc"), "%v", err)
}

// TestOrderOfCredentials: MinIO's variables win over Amazon's, these over mc's file, and that one over Amazon's file.
func TestOrderOfCredentials(t *testing.T) {
	home := alone(t)
	for name, text := range map[string]string{
		".mc/config.json":  `{"version":"10","aliases":{"s3":{"accessKey":"mcfile","secretKey":"secret12","api":"S3v4"}}}`,
		".aws/credentials": "[default]\naws_access_key_id = awsfile\naws_secret_access_key = secret12\n",
	} {
		assert.OK(t, os.MkdirAll(filepath.Dir(filepath.Join(home, name)), 0o700))
		assert.OK(t, os.WriteFile(filepath.Join(home, name), []byte(text), 0o600))
	}
	signed := func(want string) {
		t.Helper()
		key, err := signedWith(t, "")
		assert.That(t, key == want, "signed with %q, want %q: %v", key, want, err)
	}
	t.Setenv("MINIO_ROOT_USER", "minioenv")
	t.Setenv("MINIO_ROOT_PASSWORD", "secret12")
	t.Setenv("AWS_ACCESS_KEY_ID", "awsenv")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret12")
	t.Setenv("AWS_SESSION_TOKEN", "token")
	signed("minioenv")
	os.Unsetenv("MINIO_ROOT_USER")
	signed("awsenv token")
	os.Unsetenv("AWS_ACCESS_KEY_ID")
	signed("mcfile")
	assert.OK(t, os.Remove(filepath.Join(home, ".mc/config.json")))
	signed("awsfile")
}
