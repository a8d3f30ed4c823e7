package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/smithy-go"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// chain finds credentials as the AWS command line does. The SDK's own provider would read the files only once.
type chain struct {
	load    func(context.Context) (aws.Config, error)
	current atomic.Pointer[aws.CredentialsProvider]
}

var _ aws.CredentialProviderSource = (*chain)(nil)

func (c *chain) Retrieve(ctx context.Context) (aws.Credentials, error) {
	return (*c.current.Load()).Retrieve(ctx)
}

// ProviderSources returns where the credentials are from.
func (c *chain) ProviderSources() []aws.CredentialSource { return sources(*c.current.Load()) }

func sources(p aws.CredentialsProvider) []aws.CredentialSource {
	if source, ok := p.(aws.CredentialProviderSource); ok {
		return source.ProviderSources()
	}
	return nil
}

// renew looks for credentials anew, and keeps the present ones if it finds none. Unless the server has refused the
// present ones, it accepts only credentials that are written in a file.
func (c *chain) renew(ctx context.Context, refused bool) {
	cfg, err := c.load(ctx)
	if err != nil || !refused && !slices.Equal(sources(cfg.Credentials), []aws.CredentialSource{aws.CredentialSourceProfile}) {
		return
	}
	if _, err := cfg.Credentials.Retrieve(ctx); err == nil {
		c.current.Store(&cfg.Credentials)
	}
}

// roleTimeout bounds the search for credentials. It is short, because most networks have no service that knows a
// machine's role.
const roleTimeout = 5 * time.Second

// Signable returns the keys, or an error if there are none. The SDK's own error is too long. The SDK caches credentials
// until they expire.
func (c *client) Signable(ctx context.Context) (s3api.Keys, error) {
	if c.credentials == nil {
		return s3api.Keys{}, nil
	}
	asked, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	v, err := c.credentials.Retrieve(asked)
	if err == nil {
		return s3api.Keys{ID: v.AccessKeyID, Secret: v.SecretAccessKey, Token: v.SessionToken}, nil
	}
	if later := c.later(cmp.Or(asked.Err(), err)); later != nil {
		return s3api.Keys{}, later
	}
	return s3api.Keys{}, fmt.Errorf("no AWS credentials are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (%s)", httptransport.Innermost(err))
}

// Renew is Signable after a new search. A program with a client of its own must renew its credentials itself.
func (c *client) Renew(ctx context.Context, refused bool) (s3api.Keys, error) {
	if c.chain != nil {
		asked, cancel := context.WithTimeout(ctx, roleTimeout)
		defer cancel()
		c.chain.renew(asked, refused)
	}
	return c.Signable(ctx)
}

// later returns a fault.CredentialsLater if the search for credentials has failed, and that might be temporary.
// Otherwise it returns nil. If no setting names a service, the SDK asks the metadata service of Amazon's machines. On
// other machines that service doesn't answer.
func (c *client) later(err error) error {
	var answer interface{ HTTPStatusCode() int }
	status := 0
	if errors.As(err, &answer) {
		status = answer.HTTPStatusCode()
	}
	guessed := slices.Equal(sources(c.credentials), []aws.CredentialSource{aws.CredentialSourceIMDS})
	switch {
	case status != 0 && throttled.IsErrorRetryable(err) == aws.TrueTernary:
		status = http.StatusTooManyRequests
	case status == 0 && !guessed && errors.As(err, new(*smithy.DeserializationError)):
		return fmt.Errorf("%w: the answer of their service can't be read", fault.CredentialsLater)
	}
	return s3api.CredentialsLater(status, guessed, err)
}

// throttled recognizes refusals of Amazon's STS that are temporary, although their status is 400.
var throttled = retry.IsErrorRetryables{
	retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes},
	retry.RetryableErrorCode{Codes: map[string]struct{}{"IDPCommunicationError": {}}},
}
