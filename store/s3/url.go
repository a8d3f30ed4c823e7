package s3

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// defaultRegion is the region that requests are signed for if none is set. Most servers
// other than Amazon's ignore it.
const defaultRegion = "us-east-1"

// Open returns the repository that a URL names: see the package comment. It reads the
// configuration of the AWS command line, and makes no request. Its errors are
// [store.ErrURL] and [store.ErrConfig].
func Open(ctx context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(buildable()),
		config.WithLogger(logging.Nop{}),
		// For the requests for credentials.
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
	}
	if t.profile != "" {
		options = append(options, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		options = append(options, config.WithRegion(t.region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: of the AWS SDK: %s", store.ErrConfig, strings.Join(strings.Fields(err.Error()), " "))}
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = frozen(cfg.HTTPClient.(*awshttp.BuildableClient)) // which AWS_CA_BUNDLE needs
		if t.endpoint != "" {
			o.BaseEndpoint = aws.String(t.endpoint)
		}
		o.UsePathStyle, _ = s3api.Bool("path-style", t.pathStyle, o.BaseEndpoint != nil) // parse has checked it
	})
	if endpoint := client.Options().BaseEndpoint; endpoint != nil {
		if _, err := host(*endpoint); err != nil {
			return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: %s: %w", store.ErrConfig, endpointSource(), err)}
		}
	}
	return New(client, t.bucket, t.Options)
}

// Check returns a store.ErrURL that says what is wrong with a URL, or nil. It opens nothing and
// makes no request.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is what a URL says.
type target struct {
	bucket, region, endpoint, profile, pathStyle string
	Options
}

func parse(u *url.URL) (t target, err error) {
	if t.bucket = u.Host; u.Port() != "" || strings.Contains(t.bucket, ":") {
		return t, fmt.Errorf("%w: s3: it is s3://BUCKET/PREFIX; a server's address goes into endpoint=", store.ErrURL)
	}
	if strings.HasSuffix(t.bucket, directoryBucket) {
		return t, fmt.Errorf("%w: s3: a directory bucket lists in no order, and can't be used", store.ErrURL)
	}
	q, err := httptransport.Query(u, "region", "endpoint", "profile", "path-style", "conditions", "if-match")
	if err != nil {
		return t, err
	}
	t.Prefix, t.region, t.profile, t.pathStyle, t.Conditions = u.Path, q["region"], q["profile"], q["path-style"], q["conditions"]
	if _, err := s3api.Bool("path-style", t.pathStyle, false); err != nil {
		return t, err
	}
	switch q["if-match"] {
	case "", "quoted":
	case "unquoted":
		t.UnquotedIfMatch = true
	default:
		return t, fmt.Errorf("%w: if-match= is quoted or unquoted", store.ErrURL)
	}
	if t.endpoint = q["endpoint"]; t.endpoint != "" {
		if !strings.Contains(t.endpoint, "://") {
			t.endpoint = "https://" + t.endpoint
		}
		if _, err := host(t.endpoint); err != nil {
			return t, fmt.Errorf("%w: s3: %w", store.ErrURL, err)
		}
	}
	_, _, err = s3api.Options(t.Prefix, t.Conditions, store.Claimed)
	return t, err
}

// endpointSource names the setting that the SDK has taken an endpoint from, if the URL
// has none.
func endpointSource() string {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return "endpoint_url in the AWS configuration file"
}
