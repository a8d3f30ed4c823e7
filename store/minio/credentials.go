package minio

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"sync/atomic"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
)

// roleTimeout bounds a request for the credentials of the machine's role. It is short, because most networks have no
// service that answers. serviceTimeout bounds a request to a service that the environment names.
const (
	roleTimeout    = 2 * time.Second
	serviceTimeout = 10 * time.Second
)

// named reports whether the environment names a service of credentials. If it names none, the library asks the metadata
// service of Amazon's machines. On other machines that service doesn't answer.
func named() bool {
	return slices.ContainsFunc([]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	}, func(name string) bool { return os.Getenv(name) != "" })
}

// credentialsOf finds the credentials of an alias of mc. If alias is "", it finds the credentials that MinIO's own
// programs find: in the environment, in mc's and Amazon's files, or by the machine's role.
func credentialsOf(alias string) *chain {
	return &chain{
		alias: alias,
		providers: []credentials.Provider{
			&credentials.EnvMinio{},
			&credentials.EnvAWS{},
			&credentials.FileMinioClient{Filename: mcFile()},
			&credentials.FileAWSCredentials{},
			&credentials.IAM{},
		},
		role: &http.Transport{DialContext: (&net.Dialer{Timeout: roleTimeout / 2}).DialContext},
	}
}

// chain tries providers of credentials in turn. The library's own Chain would drop their errors.
type chain struct {
	alias     string // of mc; if it isn't "", chain doesn't ask the providers
	providers []credentials.Provider
	role      http.RoundTripper // to the service that knows the machine's role
	current   credentials.Provider
	ofMC      atomic.Bool // the present credentials are of mc's file, which is read once
	stale     atomic.Bool // the next request needs another search
}

// RetrieveWithCredContext returns the credentials of the first provider that has any. If a provider might have some
// later, the error is a fault.CredentialsLater.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if c.alias != "" {
		v, err := ofAlias(c.alias)
		if err == nil {
			c.found(&credentials.Static{}, true) // which doesn't expire
		}
		return v, err
	}
	var later error
	for _, p := range c.providers {
		asked := &service{next: cmp.Or(cc.Client.Transport, http.DefaultTransport)}
		client := &http.Client{Transport: asked, Timeout: serviceTimeout}
		if _, role := p.(*credentials.IAM); role {
			asked.next, asked.guessed = c.role, !named()
		}
		if asked.guessed {
			client.Timeout = roleTimeout
		}
		v, err := p.RetrieveWithCredContext(&credentials.CredContext{Client: client, Endpoint: cc.Endpoint, Context: cc.Context})
		switch {
		case err == nil && v.AccessKeyID != "" && v.SecretAccessKey != "":
			_, mc := p.(*credentials.FileMinioClient)
			c.found(p, mc)
			return v, nil
		case err != nil && later == nil:
			later = s3api.CredentialsLater(asked.status, asked.guessed, err)
		}
	}
	return credentials.Value{SignerType: credentials.SignatureAnonymous}, later
}

// Retrieve is RetrieveWithCredContext for older callers in the library.
func (c *chain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

// found records the provider of the present credentials.
func (c *chain) found(p credentials.Provider, ofMC bool) {
	c.current = p
	c.ofMC.Store(ofMC)
	c.stale.Store(false)
}

func (c *chain) IsExpired() bool { return c.current == nil || c.stale.Load() || c.current.IsExpired() }

// service is a transport to a service of credentials. A provider's error doesn't have the status of the answer. So
// service records the last status, or 0 if there was no answer.
type service struct {
	next    http.RoundTripper
	guessed bool // no setting names the service
	status  int
}

func (s *service) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	s.status = 0
	if err == nil {
		s.status = res.StatusCode
	}
	return res, err
}

// Signable returns the keys, or an error if there are none. Without that error the library would send anonymous
// requests. The library caches credentials until they expire.
func (c *client) Signable(ctx context.Context) (s3api.Keys, error) {
	type answer struct {
		keys s3api.Keys
		err  error
	}
	got := make(chan answer, 1)
	go func() {
		keys, err := c.signable()
		got <- answer{keys, err}
	}()
	select {
	case <-ctx.Done():
		return s3api.Keys{}, ctx.Err()
	case a := <-got:
		return a.keys, a.err
	}
}

func (c *client) signable() (s3api.Keys, error) {
	v, err := c.api.GetCreds()
	if errors.Is(err, store.ErrConfig) || errors.Is(err, fault.CredentialsLater) { // an error of the chain itself
		return s3api.Keys{}, err
	}
	if err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return s3api.Keys{}, errors.New("no credentials are found: set MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an alias of mc")
	}
	return s3api.Keys{ID: v.AccessKeyID, Secret: v.SecretAccessKey, Token: v.SessionToken}, nil
}

// Renew is Signable after a new search. A program with a client of its own must renew its credentials itself. The
// library itself reads the keys of an AWS file before each request.
func (c *client) Renew(ctx context.Context, refused bool) (s3api.Keys, error) {
	if c.chain != nil && (refused || c.chain.ofMC.Load()) {
		c.chain.stale.Store(true)
	}
	return c.Signable(ctx)
}

// mcDir returns the directory of mc's settings, or "" if there is no home directory.
func mcDir() string {
	if dir := os.Getenv("MC_CONFIG_DIR"); dir != "" {
		return dir
	}
	home, err := os.UserHomeDir()
	switch {
	case err != nil:
		return ""
	case runtime.GOOS == "windows":
		return filepath.Join(home, "mc")
	default:
		return filepath.Join(home, ".mc")
	}
}

// mcFile returns the file of mc's aliases, or "" if there is no home directory.
func mcFile() string {
	if file := os.Getenv("MINIO_SHARED_CREDENTIALS_FILE"); file != "" {
		return file
	}
	if mcDir() == "" {
		return ""
	}
	return filepath.Join(mcDir(), "config.json")
}

// maxFile is the number of bytes that we read of a file. Any file of aliases or certificates is smaller.
const maxFile = 16 << 20

// read returns the content of a regular file. It refuses a pipe, which might never end.
func read(path string) ([]byte, error) {
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if len(text) > maxFile {
		return nil, fmt.Errorf("%s is larger than %d bytes", path, maxFile)
	}
	return text, err
}

// mcHost matches the value of MC_HOST_ALIAS. Like mc, it doesn't decode percent signs.
var mcHost = lazyregexp.New(`^https?://([^:]*):(?:([^:]*):(.*)|([^:]*))@[^@]*$`)

// ofAlias returns the credentials of an alias of mc, or a store.ErrConfig without secrets.
func ofAlias(name string) (credentials.Value, error) {
	variable := "MC_HOST_" + name
	if url, ok := os.LookupEnv(variable); ok {
		m := mcHost.FindStringSubmatch(url)
		if m == nil || m[1] == "" || m[2]+m[4] == "" {
			return credentials.Value{}, fault.New(store.ErrConfig, "%.80s has no credentials: it is https://KEY:SECRET@HOST", variable)
		}
		return credentials.Value{AccessKeyID: m[1], SecretAccessKey: m[2] + m[4], SessionToken: m[3], SignerType: credentials.SignatureV4}, nil
	}
	file := mcFile()
	type host struct{ AccessKey, SecretKey string }
	var all struct{ Aliases, Hosts map[string]host } // mc's version decides which of the two is set
	switch text, err := read(file); {
	case file == "":
		return credentials.Value{}, fault.New(store.ErrConfig, "mc has no alias %.80q: there is no home directory for its file, and %.80s isn't set", name, variable)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return credentials.Value{}, fault.New(store.ErrConfig, "alias %.80q of mc: %w", name, err)
	case err == nil && json.Unmarshal(text, &all) != nil:
		return credentials.Value{}, fault.New(store.ErrConfig, "alias %.80q of mc: %s isn't mc's file: it can't be read as JSON", name, file)
	}
	h, ok := all.Aliases[name]
	if !ok {
		h, ok = all.Hosts[name]
	}
	switch {
	case !ok:
		return credentials.Value{}, fault.New(store.ErrConfig, "mc has no alias %.80q: it isn't in %s, and %.80s isn't set", name, file, variable)
	case h.AccessKey == "" || h.SecretKey == "":
		return credentials.Value{}, fault.New(store.ErrConfig, "alias %.80q of mc has no credentials in %s", name, file)
	}
	return credentials.Value{AccessKeyID: h.AccessKey, SecretAccessKey: h.SecretKey, SignerType: credentials.SignatureV4}, nil
}

// trusting returns the authorities that can sign a server's certificate: mc's own, and the authorities of
// AWS_CA_BUNDLE, or else this machine's. It returns nil if the result would be this machine's alone.
func trusting() (*tls.Config, error) {
	var own [][]byte
	var entries []os.DirEntry
	var err error
	dir := filepath.Join(mcDir(), "certs", "CAs")
	if mcDir() != "" {
		entries, err = os.ReadDir(dir)
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission) {
		return nil, fmt.Errorf("%w: certificates of mc: %w", store.ErrConfig, err)
	}
	for _, e := range entries {
		if text, err := read(filepath.Join(dir, e.Name())); err == nil { // an authority in an unreadable file isn't trusted
			own = append(own, text)
		}
	}
	bundle := os.Getenv("AWS_CA_BUNDLE")
	if bundle == "" && len(own) == 0 {
		return nil, nil
	}
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	if bundle != "" {
		text, err := read(bundle)
		if err != nil {
			return nil, fmt.Errorf("%w: AWS_CA_BUNDLE: %w", store.ErrConfig, err)
		}
		if pool = x509.NewCertPool(); !pool.AppendCertsFromPEM(text) {
			return nil, fmt.Errorf("%w: AWS_CA_BUNDLE: %s has no certificate", store.ErrConfig, bundle)
		}
	}
	for _, text := range own {
		pool.AppendCertsFromPEM(text)
	}
	return &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12}, nil
}
