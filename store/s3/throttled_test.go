package s3_test

import (
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/test/assert"
)

// TestThrottledRole: Amazon's STS answers 400 to requests that come too often. That is temporary, and another 400 isn't.
// The fake has the form of an answer of STS.
func TestThrottledRole(t *testing.T) {
	credentialed(t)
	t.Setenv("AWS_ACCESS_KEY_ID", "")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "")
	token := filepath.Join(t.TempDir(), "token")
	assert.OK(t, os.WriteFile(token, []byte("token"), 0o600))
	t.Setenv("AWS_WEB_IDENTITY_TOKEN_FILE", token)
	t.Setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/backup")
	t.Setenv("AWS_MAX_ATTEMPTS", "1")
	for code, temporary := range map[string]bool{"Throttling": true, "IDPCommunicationError": true, "InvalidIdentityToken": false} {
		sts := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusBadRequest)
			_, _ = io.WriteString(w, "<ErrorResponse><Error><Code>"+code+"</Code><Message>no</Message></Error></ErrorResponse>")
		}))
		t.Setenv("AWS_ENDPOINT_URL_STS", sts.URL)
		_, err := open(t, "s3://bucket/prefix?region=eu-west-1").List(t.Context(), "", "")
		sts.Close()
		if temporary {
			assert.Says(t, err, fault.CredentialsLater, "429 Too Many Requests")
		} else {
			assert.Says(t, err, fault.Config, "InvalidIdentityToken")
		}
	}
}
