package s3api_test

import (
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	awss3 "github.com/aws/aws-sdk-go-v2/service/s3"
	miniogo "github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/parallel"
	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/minio"
	"github.com/repolock/repolock/store/s3"
)

// lists answers each request with a listing, if its access key is "key".
func lists(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", "application/xml")
	if !strings.Contains(r.Header.Get("Authorization"), "Credential=key/") {
		say(403, "InvalidAccessKeyId")(w, r)
		return
	}
	_, _ = io.WriteString(w, strings.ReplaceAll(listing, "a/prefix/", ""))
}

// opened opens a URL in the environment.
func opened(ctx context.Context, t *testing.T, raw string) (store.Store, error) {
	t.Helper()
	u, err := url.Parse(raw)
	assert.OK(t, err)
	if u.Scheme == "s3" {
		return s3.Open(ctx, u)
	}
	return minio.Open(ctx, u)
}

var keys = []string{"AWS_ACCESS_KEY_ID=key", "AWS_SECRET_ACCESS_KEY=topsecret"}

// settled sets an environment with only these settings, for both clients.
func settled(t *testing.T, settings ...string) {
	t.Helper()
	home := t.TempDir()
	for _, v := range os.Environ() {
		name, _, _ := strings.Cut(v, "=")
		for _, prefix := range []string{"AWS_", "MINIO_", "MC_"} {
			if strings.HasPrefix(name, prefix) {
				t.Setenv(name, "") // restored afterwards
				os.Unsetenv(name)
			}
		}
	}
	for _, setting := range append(settings, "HOME="+home, "USERPROFILE="+home, "AWS_EC2_METADATA_DISABLED=true") {
		name, value, _ := strings.Cut(setting, "=")
		t.Setenv(name, value)
	}
}

func listed(t *testing.T, raw string) error {
	t.Helper()
	s, err := opened(t.Context(), t, raw)
	if err != nil {
		return err
	}
	_, err = s.List(t.Context(), "index/", "")
	return err
}

func saved(t *testing.T, text string, path ...string) string {
	t.Helper()
	file := filepath.Join(path...)
	assert.OK(t, errors.Join(os.MkdirAll(filepath.Dir(file), 0o700), os.WriteFile(file, []byte(text), 0o600)))
	return file
}

// TestPrivateAuthority: the certificate of a private authority is trusted only if AWS_CA_BUNDLE names that
// authority, or mc trusts it. A pipe among mc's authorities is ignored.
func TestPrivateAuthority(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(lists))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	authority := string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}))
	host := strings.TrimPrefix(server.URL, "https://")
	for name, raw := range map[string]string{"s3": "s3://bucket?endpoint=" + server.URL, "minio": "minio://" + host + "/bucket"} {
		t.Run(name, func(t *testing.T) {
			settled(t, keys...)
			assert.Says(t, listed(t, raw), store.ErrConfig, "AWS_CA_BUNDLE", "without a setting")
			dir := t.TempDir()
			t.Setenv("AWS_CA_BUNDLE", saved(t, authority, dir, "bundle.pem"))
			assert.Is(t, listed(t, raw), nil, "AWS_CA_BUNDLE")
			for _, bad := range []string{filepath.Join(dir, "missing"), saved(t, "no certificate", dir, "other.pem")} {
				t.Setenv("AWS_CA_BUNDLE", bad)
				assert.Says(t, listed(t, raw), store.ErrConfig, map[string]string{"minio": "AWS_CA_BUNDLE"}[name], bad)
			}
		})
	}
	for _, at := range []string{"HOME", "MC_CONFIG_DIR"} {
		settled(t, keys...)
		dir := filepath.Join(os.Getenv("HOME"), ".mc")
		if at != "HOME" {
			dir = t.TempDir()
			t.Setenv(at, dir)
		}
		saved(t, "no certificate", dir, "certs", "CAs", "notes")
		private := saved(t, authority, dir, "certs", "CAs", "private.crt")
		assert.OK(t, exec.Command("mkfifo", private+".pipe").Run())
		assert.Is(t, listed(t, "minio://"+host+"/bucket"), nil, "mc's, by %s", at)
	}
}

// TestAlias: an alias has the same credentials as for mc. If they are missing, the error shows why, and
// shows no credentials.
func TestAlias(t *testing.T) {
	server := served(t, lists)
	raw := "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false&alias=store"
	const file = `{"version":"10","aliases":{"store":{"url":"http://h","accessKey":"key","secretKey":"topsecret","api":"s3v4"},"none":{"url":"http://h"}}}`
	for _, c := range []struct {
		name, file, env, alias string
		says                   string // "" if the alias has credentials
	}{
		{name: "mc's file", file: file},
		{name: "an old one", file: strings.NewReplacer("10", "9", "aliases", "hosts").Replace(file)},
		{name: "the environment", env: "https://key:topsecret@host"},
		{name: "comes first", file: strings.ReplaceAll(file, `"key"`, `"other"`), env: "https://key:top/secret+@host"},
		{name: "with a token", env: "https://key:topsecret:a:token@host"},
		{name: "nowhere", says: `mc has no alias "store"`},
		{name: "another", file: file, alias: "other", says: `mc has no alias "other"`},
		{name: "without credentials", file: file, alias: "none", says: `alias "none" of mc has no credentials`},
		{name: "no JSON", file: "topsecret", says: "can't be read as JSON"},
		{name: "a host alone", env: "https://host", says: "MC_HOST_store has no credentials"},
		{name: "no URL", env: "topsecret", says: "MC_HOST_store has no credentials"},
	} {
		t.Run(c.name, func(t *testing.T) {
			settled(t)
			if c.file != "" {
				saved(t, c.file, os.Getenv("HOME"), ".mc", "config.json")
			}
			if c.env != "" {
				t.Setenv("MC_HOST_store", c.env)
			}
			raw := raw
			if c.alias != "" {
				raw = strings.ReplaceAll(raw, "alias=store", "alias="+c.alias)
			}
			err := listed(t, raw)
			if c.says == "" {
				assert.OK(t, err)
				return
			}
			assert.Says(t, err, store.ErrConfig, c.says)
			assert.That(t, !strings.Contains(fmt.Sprint(err), "topsecret"), "%v", err)
		})
	}
}

// TestNoHome: without a home directory, mc's configuration isn't read from the working directory.
func TestNoHome(t *testing.T) {
	settled(t)
	t.Setenv("HOME", "")
	t.Chdir(t.TempDir())
	saved(t, `{"aliases":{"evil":{"accessKey":"key","secretKey":"topsecret"}}}`, "config.json")
	assert.Says(t, listed(t, "minio://host/bucket?alias=evil"), store.ErrConfig, "no home directory")
}

// TestEndpointOfTheEnvironment: the error for a wrong endpoint names its setting.
func TestEndpointOfTheEnvironment(t *testing.T) {
	for _, name := range []string{"AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"} {
		settled(t, keys...)
		for value, says := range map[string]string{
			"minio.example.net:9000": "an endpoint is https://HOST", "http://127.0.0.1:99999": "its port isn't from 1 to 65535",
		} {
			t.Setenv(name, value)
			assert.Says(t, listed(t, "s3://bucket"), store.ErrConfig, name+": "+says)
		}
	}
	settled(t, keys...)
	t.Setenv("AWS_CONFIG_FILE", saved(t, "[default]\nendpoint_url = minio.example.net\n", t.TempDir(), "config"))
	const says = "endpoint_url in the AWS configuration file: an endpoint is https://HOST"
	assert.Says(t, listed(t, "s3://bucket"), store.ErrConfig, says)
}

// TestOpenAsksOnceForCredentials: for each request of the lock, the service of credentials is asked once.
func TestOpenAsksOnceForCredentials(t *testing.T) {
	var n atomic.Int32
	server := served(t, func(w http.ResponseWriter, _ *http.Request) {
		n.Add(1)
		w.WriteHeader(http.StatusInternalServerError)
	})
	for name, most := range map[string]int32{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI": 1,
		"AWS_EC2_METADATA_SERVICE_ENDPOINT":  2, // a token, and the role
	} {
		t.Run(name, func(t *testing.T) {
			settled(t, name+"="+server)
			t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
			n.Store(0)
			err := listed(t, "s3://bucket?endpoint=http://127.0.0.1:1")
			assert.That(t, err != nil && n.Load() > 0 && n.Load() <= most, "%v after %d requests", err, n.Load())
		})
	}
}

// TestCredentialServiceFails: if a service of credentials throttles, is down or isn't up yet, the next
// request can succeed. If it refuses, or the machine has no service, that is a wrong configuration.
func TestCredentialServiceFails(t *testing.T) {
	var answer turns
	service := served(t, answer.answer)
	gives := as("application/json", 200, `{"AccessKeyId":"key","SecretAccessKey":"topsecret","Token":"t","Expiration":"2099-01-01T00:00:00Z"}`)
	server := served(t, lists)
	for name, repo := range map[string]string{
		"s3": "s3://bucket?endpoint=" + server, "minio": "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false",
	} {
		for _, c := range []struct {
			name   string
			answer http.HandlerFunc
			url    string
			says   string
			passes bool
		}{
			{"throttles", text(429, ""), service, "429", true},
			{"throttles in JSON", as("application/json", 429, "{}"), service, "429", true},
			{"is down", text(503, ""), service, "503", true},
			{"fails", text(500, "oops"), service, "500", true},
			{"breaks off", raw(""), service, "EOF", true},
			{"isn't up", nil, "http://127.0.0.1:1", "connection refused", true},
			{"refuses", text(403, ""), service, "no ", false},
			{"isn't one", text(404, ""), service, "no ", false},
		} {
			t.Run(name+"/"+c.name, func(t *testing.T) {
				settled(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+c.url)
				answer.set(c.answer)
				s, err := opened(t.Context(), t, repo)
				assert.OK(t, err)
				for range 2 {
					err = requests["list"](t.Context(), s)
					assert.Says(t, err, err, c.says)
					assert.That(t, errors.Is(err, store.ErrConfig) != c.passes && store.Permanent(err) != c.passes && !errors.Is(err, store.ErrUnreachable), "%v", err)
				}
				if c.passes && c.answer != nil {
					answer.set(gives)
					assert.OK(t, requests["list"](t.Context(), s))
				}
			})
		}
	}
	settled(t, "AWS_EC2_METADATA_SERVICE_ENDPOINT=http://127.0.0.1:1")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "false")
	assert.Says(t, listed(t, "s3://bucket?endpoint="+server), store.ErrConfig, "no AWS credentials", "a machine without a service")
}

// TestCredentialServiceIsSlow: the search for credentials ends after 5 s, and the next one can succeed.
func TestCredentialServiceIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, err := s3.New(awss3.New(awss3.Options{Region: "us-east-1", Credentials: aws.CredentialsProviderFunc(func(ctx context.Context) (aws.Credentials, error) {
			<-ctx.Done()
			return aws.Credentials{}, errors.New("late")
		})}), "bucket", s3.Options{})
		assert.OK(t, err)
		began := time.Now()
		err = requests["list"](t.Context(), s)
		assert.Says(t, err, err, "no answer from their service in time")
		assert.That(t, !store.Permanent(err) && time.Since(began) == 5*time.Second, "%v after %v", err, time.Since(began))
	})
}

// TestProviderOfMinIOHangs: a request whose context ends doesn't wait for a provider of credentials that heeds no context.
func TestProviderOfMinIOHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		provider := stuck(make(chan struct{}))
		defer close(provider)
		opts := &miniogo.Options{Creds: credentials.New(provider)}
		minio.Configure(opts)
		client, err := miniogo.New("127.0.0.1:1", opts)
		assert.OK(t, err)
		s, err := minio.New(client, "bucket", minio.Options{})
		assert.OK(t, err)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		assert.Is(t, requests["list"](ctx, s), context.DeadlineExceeded)
	})
}

// stuck is a provider that returns once the channel is closed.
type stuck chan struct{}

func (s stuck) Retrieve() (credentials.Value, error) {
	<-s
	return credentials.Value{}, errors.New("late")
}

func (s stuck) RetrieveWithCredContext(*credentials.CredContext) (credentials.Value, error) {
	return s.Retrieve()
}

func (stuck) IsExpired() bool { return true }

// TestDefaultsModeKeepsTimeouts: AWS_DEFAULTS_MODE doesn't replace the timeouts for connecting.
func TestDefaultsModeKeepsTimeouts(t *testing.T) {
	client := awss3.New(awss3.Options{DefaultsMode: aws.DefaultsModeInRegion, HTTPClient: s3.HTTPClient()}).Options().HTTPClient
	c, ok := client.(*http.Client)
	assert.That(t, ok && c.Transport.(*http.Transport).TLSHandshakeTimeout == 5*time.Second,
		"the SDK has rebuilt HTTPClient: %T", client)
}

// guarded refuses each request whose access key or session token isn't the valid one, and counts the requests.
type guarded struct {
	valid  atomic.Pointer[string]
	refuse turns
	n      atomic.Int32
}

func (g *guarded) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	g.n.Add(1)
	valid := *g.valid.Load()
	if !strings.Contains(r.Header.Get("Authorization"), "Credential="+valid+"/") && r.Header.Get("X-Amz-Security-Token") != valid {
		_, _ = io.Copy(io.Discard, r.Body)
		g.refuse.answer(w, r)
		return
	}
	w.Header().Set("Etag", `"e"`)
	switch {
	case r.URL.Query().Has("list-type"):
		as("application/xml", 200, strings.ReplaceAll(listing, "a/prefix/", ""))(w, r)
	case r.Method == http.MethodPost:
		as("application/xml", 200, fmt.Sprintf(deleteResult, named("index/k")))(w, r)
	case r.Method == http.MethodDelete:
		w.WriteHeader(http.StatusNoContent)
	case r.Method == http.MethodGet:
		w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:07 GMT")
		as("application/json", 200, "{}")(w, r)
	}
}

// TestCredentialServiceIsAskedAgain: if the server refuses credentials of a service that haven't expired, the service is
// asked again, once for all requests that are refused at the same time. If only the session token is new, they are sent
// once more, too.
func TestCredentialServiceIsAskedAgain(t *testing.T) {
	g, asked := new(guarded), new(atomic.Int32)
	service := served(t, func(w http.ResponseWriter, r *http.Request) {
		asked.Add(1)
		key, token := *g.valid.Load(), "t"
		if strings.HasPrefix(key, "token") {
			key, token = "key1", key
		}
		as("application/json", 200, fmt.Sprintf(`{"AccessKeyId":%q,"SecretAccessKey":"topsecret","Token":%q,"Expiration":"2099-01-01T00:00:00Z"}`, key, token))(w, r)
	})
	server := served(t, g.ServeHTTP)
	for name, repo := range map[string]string{
		"s3": "s3://bucket?endpoint=" + server, "minio": "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false",
	} {
		t.Run(name, func(t *testing.T) {
			settled(t, "AWS_CONTAINER_CREDENTIALS_FULL_URI="+service)
			s, err := opened(t.Context(), t, repo)
			assert.OK(t, err)
			for _, valid := range []string{"key0", "key1", "token1"} {
				var both sync.WaitGroup
				both.Add(2)
				g.refuse.set(func(w http.ResponseWriter, r *http.Request) {
					both.Done()
					both.Wait()
					say(403, "InvalidAccessKeyId")(w, r)
				})
				g.valid.Store(&valid)
				asked.Store(0)
				parallel.Each(2, 2, func(int) { assert.Is(t, requests["list"](t.Context(), s), nil, valid) })
				assert.Equal(t, asked.Load(), 1, valid+": times that the service was asked")
			}
		})
	}
}

// TestCredentialProcessFails: a program of credential_process that is missing is a wrong configuration, and the next
// start of a program that fails can succeed.
func TestCredentialProcessFails(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	for program, wrong := range map[string]bool{"sh -c 'exit 127'": true, "sh -c 'exit 126'": true, "sh -c 'exit 1'": false} {
		config := saved(t, "[default]\ncredential_process = "+program+"\n", t.TempDir(), "config")
		settled(t, "AWS_CONFIG_FILE="+config)
		err := listed(t, "s3://bucket?endpoint=http://127.0.0.1:1")
		assert.That(t, errors.Is(err, store.ErrConfig) == wrong && store.Permanent(err) == wrong, "%s: %v", program, err)
	}
}

// TestCredentialProcess: a program of credential_process is started again if the server has refused the credentials
// themselves, with whichever code, and the request is then sent once more. It isn't started after a refusal that can
// mean a lack of permission. Credentials that the program can't renew stay.
func TestCredentialProcess(t *testing.T) {
	if _, err := exec.LookPath("sh"); err != nil {
		t.Skip("there is no shell")
	}
	g, dir := new(guarded), t.TempDir()
	server := served(t, g.ServeHTTP)
	starts, key, config := filepath.Join(dir, "starts"), filepath.Join(dir, "key"), filepath.Join(dir, "config")
	saved(t, "echo >> '"+starts+"'; read key < '"+key+`' || exit 1
echo '{"Version":1,"AccessKeyId":"'"$key"'","SecretAccessKey":"topsecret","SessionToken":"token"}'`, dir, "program")
	saved(t, "[default]\ncredential_process = sh '"+filepath.Join(dir, "program")+"'\n", config)
	settled(t, "AWS_CONFIG_FILE="+config)
	started := func() int {
		text, _ := os.ReadFile(starts)
		return strings.Count(string(text), "\n")
	}
	set := func(now string) {
		g.valid.Store(&now)
		saved(t, now+"\n", key)
	}
	set("key0")
	s, err := opened(t.Context(), t, "s3://bucket?endpoint="+server)
	assert.OK(t, err)
	list := func() error { g.n.Store(0); return requests["list"](t.Context(), s) }
	assert.OK(t, list())
	for n, code := range []string{
		"ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired", "InvalidAccessKeyId", "InvalidClientTokenId",
		"InvalidToken", "InvalidTokenId", "InvalidSecurity", "XAdminUserNotFound",
	} {
		g.refuse.set(say(400, code))
		before := started()
		set(fmt.Sprint("key", n+1))
		err := list()
		assert.That(t, err == nil && g.n.Load() == 2 && started() == before+1, "%s: %v, in %d requests and %d starts", code, err, g.n.Load(), started()-before)
	}
	for _, status := range []int{401, 403} {
		g.refuse.set(say(status, "AccessDenied"))
		before := started()
		set(fmt.Sprint("another", status))
		err := list()
		assert.That(t, err != nil && g.n.Load() == 1 && started() == before, "%d: %v, in %d requests and %d starts", status, err, g.n.Load(), started()-before)
	}
	set("key10")
	assert.OK(t, list())
	assert.OK(t, os.Remove(key)) // the program fails
	another := "another"
	g.valid.Store(&another)
	g.refuse.set(say(400, "ExpiredToken"))
	assert.That(t, list() != nil, "accepted")
	valid := "key10"
	g.valid.Store(&valid)
	assert.OK(t, list())
}

// TestRotatedCredentials: if another process has written new credentials into the file, a request that is refused
// for the old ones is sent once more, with the new ones. Without new ones, it is sent once. So are requests that are
// refused at the same time.
func TestRotatedCredentials(t *testing.T) {
	g := new(guarded)
	server := served(t, g.ServeHTTP)
	inAWS := func(t *testing.T, key string) {
		saved(t, "[default]\naws_access_key_id = "+key+"\naws_secret_access_key = topsecret\naws_session_token = of-"+key+"\n", os.Getenv("AWS_SHARED_CREDENTIALS_FILE"))
	}
	inMC := func(alias string) func(*testing.T, string) {
		return func(t *testing.T, key string) {
			saved(t, `{"version":"10","aliases":{"`+alias+`":{"accessKey":"`+key+`","secretKey":"topsecret","api":"s3v4"}}}`, os.Getenv("HOME"), ".mc", "config.json")
		}
	}
	onMinIO := "minio://" + strings.TrimPrefix(server, "http://") + "/bucket?tls=false"
	sources := map[string]struct {
		repo string
		save func(*testing.T, string)
	}{
		"s3":              {"s3://bucket?endpoint=" + server, inAWS},
		"s3, a profile":   {"s3://bucket?profile=default&endpoint=" + server, inAWS},
		"minio":           {onMinIO, inAWS},
		"minio, an alias": {onMinIO + "&alias=store", inMC("store")},
		"minio, mc's own": {onMinIO, inMC("s3")},
	}
	refusals := map[string]http.HandlerFunc{
		"expired": say(400, "ExpiredToken"), "wrong token": say(400, "InvalidToken"), "unknown key": say(403, "InvalidAccessKeyId"),
		"denied": say(403, "AccessDenied"), "no word": say(403, ""), "unauthorized": say(401, "Odd"),
	}
	for source, c := range sources {
		t.Run(source, func(t *testing.T) {
			settled(t, "AWS_SHARED_CREDENTIALS_FILE="+filepath.Join(t.TempDir(), "credentials"))
			set := func(key string) { g.valid.Store(&key) }
			set("key0")
			c.save(t, "key0")
			s, err := opened(t.Context(), t, c.repo)
			assert.OK(t, err)
			assert.OK(t, requests["list"](t.Context(), s))
			key := 0
			for why, refusal := range refusals {
				g.refuse.set(refusal)
				for of, send := range requests {
					if strings.HasPrefix(source, "minio") && of != "list" && of != "put" {
						continue // the library pauses after each failure
					}
					if of != "delete all" { // a refused one isn't sent again
						set("another")
						g.n.Store(0)
						once := int32(1)
						if strings.HasPrefix(of, "put") && why == "denied" {
							once = 2 // as MinIO needs it
						}
						assert.That(t, send(t.Context(), s) != nil, "%s: %s: refused, and no error", why, of)
						assert.Equal(t, g.n.Load(), once, "%s: %s: requests without new credentials", why, of)
					}
					key++
					now := fmt.Sprint("key", key)
					set(now)
					c.save(t, now)
					err := send(t.Context(), s)
					assert.That(t, err == nil, "%s: %s: %v", why, of, err)
				}
			}
			if source != "minio" { // there the library reads the file before each request
				g.refuse.set(say(400, "InvalidArgument"))
				set("last")
				c.save(t, "last")
				g.n.Store(0)
				assert.That(t, requests["list"](t.Context(), s) != nil && g.n.Load() == 1, "a refusal that isn't about credentials was sent %d times", g.n.Load())
			}
			g.refuse.set(say(403, "AccessDenied"))
			set("key")
			c.save(t, "key")
			parallel.Each(8, 8, func(int) { assert.Is(t, requests["list"](t.Context(), s), nil, "beside others") })
		})
	}
}
