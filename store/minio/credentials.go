package minio

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// roleTimeout bounds the request for the machine's role: most networks have no service that
// answers it.
const roleTimeout = 2 * time.Second

// credentialsOf returns the credentials that MinIO's own programs find: those of the
// environment, of mc's and Amazon's files, and of the machine's role.
func credentialsOf(alias string) *credentials.Credentials {
	if alias != "" {
		return credentials.New(&mcAlias{name: alias})
	}
	mc := &credentials.FileMinioClient{Filename: mcFile()}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvMinio{},
		&credentials.EnvAWS{},
		mc,
		&credentials.FileAWSCredentials{},
		&credentials.IAM{Client: &http.Client{
			Timeout:   roleTimeout,
			Transport: &http.Transport{DialContext: (&net.Dialer{Timeout: roleTimeout / 2}).DialContext},
		}},
	})
}

// Signable returns an error if there is nothing to sign with: the library would then send
// anonymous requests. It caches credentials until they expire.
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
	if missing := (aliasError{}); errors.As(err, &missing) {
		return missing
	}
	if err != nil || v.AccessKeyID == "" || v.SecretAccessKey == "" {
		return errors.New("no credentials are found: set MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an alias of mc")
	}
	return nil
}
