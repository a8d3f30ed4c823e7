package s3

import (
	"context"
	"errors"
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
	"github.com/repolock/repolock/store/internal/s3api"
	"github.com/repolock/repolock/store/internal/web"
)

// Store is a repository in a bucket.
type Store struct{ *s3api.Store }

var (
	_ store.Store              = (*Store)(nil)
	_ store.Describer          = (*Store)(nil)
	_ store.ConditionalDeleter = (*Store)(nil)
)

// defaultRegion is where requests to other people's servers are signed for, most
// of which don't care.
const defaultRegion = "us-east-1"

// Open gives the repository that a URL names: see the package comment. It reads
// the configuration of the AWS command line, and makes no request.
func Open(ctx context.Context, u *url.URL) (*Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(awshttp.NewBuildableClient().WithTransportOptions(web.Configure)),
		config.WithLogger(logging.Nop{}),
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
		// A checksum is sent with each put, as a header of its own. What the SDK
		// adds by itself is a trailer, which not every server understands.
		config.WithRequestChecksumCalculation(aws.RequestChecksumCalculationWhenRequired),
		config.WithResponseChecksumValidation(aws.ResponseChecksumValidationWhenRequired),
	}
	if t.profile != "" {
		options = append(options, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		options = append(options, config.WithRegion(t.region))
	}
	cfg, err := config.LoadDefaultConfig(ctx, options...)
	if err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: of the AWS SDK: %s", store.ErrConfig, oneLine(err))}
	}
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	api := s3.NewFromConfig(cfg, func(o *s3.Options) {
		if t.endpoint != "" {
			o.BaseEndpoint = aws.String(t.endpoint)
		}
		o.HTTPClient = httpClient(cfg.HTTPClient)
		o.UsePathStyle = o.BaseEndpoint != nil
		if t.pathStyle != nil {
			o.UsePathStyle = *t.pathStyle
		}
	})
	place := s3api.Place{Bucket: t.bucket, Prefix: t.prefix, Host: "S3 in " + cfg.Region}
	conditions := store.Kept // Amazon's own, where they are documented
	if endpoint := api.Options().BaseEndpoint; endpoint != nil {
		conditions = store.Claimed
		if place.Host, err = host(*endpoint); err != nil {
			return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: %s: %w", store.ErrConfig, endpointSource(), err)}
		}
		scheme, _, _ := strings.Cut(*endpoint, "://")
		place.Endpoint = scheme + "://" + place.Host
		place.PlainHint = "write endpoint=http://" + place.Host + " if that is wanted"
	}
	if conditions, err = s3api.Conditions(t.conditions, conditions); err != nil {
		return nil, err
	}
	return &Store{s3api.New(&client{api, t.bucket, cfg.Credentials, t.bare}, place, "s3", conditions)}, nil
}

// httpClient is the one that the configuration was given, which by then knows of
// AWS_CA_BUNDLE, with what it is answered looked at.
func httpClient(c aws.HTTPClient) aws.HTTPClient {
	return &notRedirected{s3api.Transport(c.(*awshttp.BuildableClient).GetTransport())}
}

// Check finds what is wrong with a URL before anything is opened.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is what a URL says.
type target struct {
	bucket, prefix, region, endpoint, profile, conditions string
	pathStyle                                             *bool
	bare                                                  bool // If-Match without quotes
}

func parse(u *url.URL) (t target, err error) {
	if t.bucket = u.Host; u.Port() != "" || strings.Contains(t.bucket, ":") {
		return t, fmt.Errorf("%w: s3: it is s3://BUCKET/PREFIX; a server's address goes into endpoint=", store.ErrURL)
	}
	if strings.HasSuffix(t.bucket, "--x-s3") {
		return t, fmt.Errorf("%w: s3: a directory bucket lists in no order, and can't be used", store.ErrURL)
	}
	if t.prefix, err = s3api.Prefix(u.Path); err != nil {
		return t, err
	}
	q, err := web.Query(u, "region", "endpoint", "profile", "path-style", "conditions", "if-match")
	if err != nil {
		return t, err
	}
	t.region, t.profile, t.conditions = q["region"], q["profile"], q["conditions"]
	if q["path-style"] != "" {
		style, err := s3api.Bool("path-style", q["path-style"], false)
		if err != nil {
			return t, err
		}
		t.pathStyle = &style
	}
	switch q["if-match"] {
	case "", "quoted":
	case "unquoted":
		t.bare = true
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
	if _, err := s3api.Conditions(t.conditions, store.Claimed); err != nil {
		return t, err
	}
	return t, nil
}

// host is an endpoint's, for messages.
func host(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("an endpoint is https://HOST or http://HOST")
	}
	if u.User != nil {
		return "", errors.New("credentials don't belong in an endpoint")
	}
	return u.Host, nil
}

// endpointSource is where the SDK has an endpoint from that isn't in the URL.
func endpointSource() string {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return "endpoint_url in the AWS configuration file"
}

func oneLine(err error) string {
	return strings.Join(strings.Fields(err.Error()), " ")
}
