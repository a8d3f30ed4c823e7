package s3

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"

	"github.com/repolock/repolock/internal/test/assert"
)

// TestRenewalIsBounded: a search for new credentials ends after 5 s, as the first search does.
func TestRenewalIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &client{chain: &chain{load: func(ctx context.Context) (aws.Config, error) {
			<-ctx.Done()
			return aws.Config{}, ctx.Err()
		}}}
		began := time.Now()
		_, err := c.Renew(t.Context(), true)
		assert.That(t, err == nil && time.Since(began) == roleTimeout, "%v after %v", err, time.Since(began))
	})
}
