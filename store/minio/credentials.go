package minio

import (
	"context"
	"errors"
	"net"
	"net/http"
	"time"

	"github.com/minio/minio-go/v7/pkg/credentials"
)

// roleTimeout is how long a machine may take to say which role it has: it is
// asked on its own network, and most have nobody there to answer.
const roleTimeout = 2 * time.Second

// credentialsOf looks where MinIO's own programs do: in the environment, in mc's
// and Amazon's files, and for the role of the machine.
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

// Signable says that there is nothing to sign with: the library would then ask
// as nobody. Credentials that were found are kept until they expire.
func (c *client) Signable(ctx context.Context) error {
	type found struct {
		value credentials.Value
		err   error
	}
	got := make(chan found, 1)
	go func() {
		v, err := c.keys.GetWithContext(c.api.CredContext())
		got <- found{v, err}
	}()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case f := <-got:
		if missing := (aliasError{}); errors.As(f.err, &missing) {
			return missing
		}
		if f.err != nil || f.value.AccessKeyID == "" || f.value.SecretAccessKey == "" {
			return errors.New("no credentials are found: set MINIO_ROOT_USER and MINIO_ROOT_PASSWORD, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or an alias of mc")
		}
		return nil
	}
}
