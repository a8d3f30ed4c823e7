package minio

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"slices"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
)

// roleTimeout bounds a request for the machine's role, because most networks have no service that
// answers it. serviceTimeout bounds a request to a service that the environment names.
const (
	roleTimeout    = 2 * time.Second
	serviceTimeout = 10 * time.Second
)

// named reports whether the environment names a service of credentials. Otherwise the library asks
// Amazon's service for machines. If that is silent, there is none.
func named() bool {
	return slices.ContainsFunc([]string{
		"AWS_CONTAINER_CREDENTIALS_FULL_URI", "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "AWS_WEB_IDENTITY_TOKEN_FILE",
	}, func(name string) bool { return os.Getenv(name) != "" })
}

// credentialsOf returns the credentials of an alias of mc. If alias is "", it returns the credentials
// that MinIO's own programs find: in the environment, in mc's and Amazon's files, or by the
// machine's role.
func credentialsOf(alias string) *credentials.Credentials {
	return credentials.New(&chain{
		alias: alias,
		providers: []credentials.Provider{
			&credentials.EnvMinio{},
			&credentials.EnvAWS{},
			&credentials.FileMinioClient{Filename: mcFile()},
			&credentials.FileAWSCredentials{},
			&credentials.IAM{},
		},
		role: &http.Transport{DialContext: (&net.Dialer{Timeout: roleTimeout / 2}).DialContext},
	})
}

// chain tries providers in turn. The library's Chain would drop their errors.
type chain struct {
	alias     string // of mc, which is asked instead if it isn't ""
	providers []credentials.Provider
	role      http.RoundTripper // to the service of a machine's role
	current   credentials.Provider
}

// RetrieveWithCredContext returns the credentials of the first provider that has some. The error is a
// fault.CredentialsLater if a provider might have some later.
func (c *chain) RetrieveWithCredContext(cc *credentials.CredContext) (credentials.Value, error) {
	if c.alias != "" {
		v, err := ofAlias(c.alias)
		if err == nil {
			c.current = &credentials.Static{} // which doesn't expire
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
			c.current = p
			return v, nil
		case err != nil && later == nil:
			later = s3api.CredentialsLater(asked.status, asked.guessed, err)
		}
	}
	return credentials.Value{SignerType: credentials.SignatureAnonymous}, later
}

// Retrieve is for the library's older callers.
func (c *chain) Retrieve() (credentials.Value, error) {
	return c.RetrieveWithCredContext(&credentials.CredContext{Client: http.DefaultClient})
}

func (c *chain) IsExpired() bool { return c.current == nil || c.current.IsExpired() }

// service is a transport to a service of credentials. A provider's errors are texts, so it notes the
// last status, or 0 without an answer.
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

// Signable returns an error if there are no credentials, because the library would then send
// anonymous requests. The library caches credentials until they expire.
func (c *client) Signable(ctx context.Context) error {
	got := make(chan error, 1)
	go func() { got <- c.signable() }()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case err := <-got:
		return err
	}
}

func (c *client) signable() error {
	v, err := c.api.GetCreds()
	if errors.Is(err, store.ErrConfig) || errors.Is(err, fault.CredentialsLater) { // of the chain, and no provider's
		return err
	}
	if err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return errors.New("no credentials are found: set MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an alias of mc")
	}
	return nil
}
