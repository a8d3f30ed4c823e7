// Package s3 keeps a repository in a bucket of Amazon S3, or of any server that speaks its protocol, on the AWS SDK for
// Go.
//
// # URL
//
//	s3://BUCKET/PREFIX?region=&endpoint=&profile=&path-style=&conditions=&if-match=&requester-pays=&listings=&sse=&sse-key=&acl=
//
// [Open] takes such a URL, and [New] a client of the program's own. The prefix can be missing. endpoint is the https://
// or http:// address of a server other than Amazon's; requests to it name the bucket in the path, unless
// path-style=false (also written path_style). conditions is how far the lock relies on conditional puts: kept, none
// (they aren't sent), or auto, which is the default for servers other than Amazon's. With auto they are sent, and a
// process relies on them once the server has kept one. if-match=unquoted sends ETags in If-Match without quotes, as
// Ceph's gateway needs them. sse=AES256 or sse=aws:kms, with the KMS key sse-key, and acl, a canned ACL, are sent as
// headers of each put, if the bucket's policy demands them.
//
// Otherwise Open finds credentials, region, endpoint and certificates as the AWS command line does: in the environment,
// in its configuration and credentials files, by SSO, or by the role of the machine. If a service of credentials is
// throttling, down, slow or not up yet, the error is temporary, and isn't [store.ErrConfig]. The default region is
// us-east-1.
//
// If the server refuses the credentials, the store looks for them anew, because another process might have written new
// ones into the file. If it finds others, it sends the request once more. After another 401 or 403 it takes only
// credentials that a file itself has, and starts no program of credential_process.
//
// # Cost and guarantees
//
// The signature of a request covers Host, the x-amz- headers, Content-MD5 and the condition, so a proxy can rewrite any
// other header. Each method is one request, and the SDK repeats none. A program's own HTTP client must not repeat
// requests either: see [New]. The store sends a request a second time only after a refusal: if the server refused the
// time in the signature, because the SDK has then learnt the server's time; if it refused credentials that were replaced;
// or if it refused a put as not permitted, which MinIO does while another object is being deleted. After a deletion that
// is answered with 200, or with 404 and no code, one listing shows whether the object is gone.
//
// A success must have the form of S3's: a web page, an empty body or a cut listing is an error. A success whose body is
// one of S3's errors is a temporary failure.
//
// # Versions
//
// In a bucket that keeps versions, a Put removes the version that the same Store put before. A Delete removes the last
// version, and also the delete marker if that hides nothing. Each version is one more request, and the marker two. They
// need s3:DeleteObjectVersion and, for the marker, s3:ListBucketVersions. Without these, or if Object Lock keeps the
// versions, they stay, and readers don't see them. The versions of a process that crashed, and of a put that got no
// answer, stay too. A lifecycle rule for noncurrent versions and expired markers under the prefix removes them.
//
// # Caveats
//
// Amazon documents that listings show earlier writes, and that conditional puts are kept. Some other servers ignore the
// conditions, and some refuse them. Neither harms the lock; the command repolock doctor tests a server.
//
// ETags are opaque. Directory buckets (S3 Express) list in no order, and are refused.
package s3

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	awshttp "github.com/aws/aws-sdk-go-v2/aws/transport/http"
	"github.com/aws/aws-sdk-go-v2/config"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/logging"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
	"github.com/repolock/repolock/store/internal/s3api"
)

// Options are the options of a repository. The zero value is a repository at the root of its bucket.
type Options struct {
	// Prefix is the prefix of all keys. Slashes around it are ignored.
	Prefix string
	// Conditions is how far the lock relies on conditional puts: "auto", "kept" or "none", as in a URL. "" is "kept" on
	// Amazon's own endpoint. It is "auto" on any other endpoint, and with a program's own endpoint resolver. Write
	// "auto" if middleware or the HTTP client sends the requests to another server than Amazon's.
	Conditions string
	// UnquotedIfMatch sends ETags in If-Match without quotes, as Ceph's gateway needs
	// them.
	UnquotedIfMatch bool
	// RequesterPays sends the consent that a bucket with "requester pays" demands: Amazon charges the requests to us.
	RequesterPays bool
	// FreshListings vouches for the listings of a server that looks like rclone serve s3: all machines use this one
	// server, and nothing else writes into its directory.
	FreshListings bool
	// Encryption is the server-side encryption that each put asks for: AES256, aws:kms or aws:kms:dsse. EncryptionKey is
	// the id, the ARN or the alias of the KMS key. ACL is a canned ACL of each put. All can be "".
	Encryption, EncryptionKey, ACL string
}

// headers returns the options as headers of a put.
func (o Options) headers() s3api.PutHeaders {
	return s3api.PutHeaders{SSE: o.Encryption, SSEKey: o.EncryptionKey, ACL: o.ACL}
}

// New returns the repository in a bucket. It makes no request. The repository is also a [store.Describer], in two
// requests, a [store.BatchDeleter], and a [store.ConditionalDeleter]: Amazon heeds the condition, and other servers
// ignore or refuse it.
//
// The client provides endpoint, region, credentials and middleware. New doesn't change the client. But the repository
// sends each request once, without the client's retries, timeouts and redirects, and with no checksum but Content-MD5.
// [HTTPClient] returns the HTTP client that Open uses.
//
// If the HTTP client is an [*awshttp.BuildableClient], or an [*http.Client] with an [*http.Transport], New copies its
// transport. The copy has its own connections, and no protocols of RegisterProtocol. With any other HTTP client, a
// missing answer is never [store.ErrUnreachable], because the client might hide an answer. Neither such a client nor
// middleware may repeat a request: a write that is applied twice, or late, can take a lock away from its holder. If one
// repeats a request under the same context, the repository notices that, and returns an error whatever the answer is.
//
// New returns [store.ErrConfig] if the client has no region, or has an endpoint that is no URL, and [store.ErrURL] if
// the bucket or the options can't be used.
func New(c *s3.Client, bucket string, opts Options) (store.Store, error) {
	return repository(c, bucket, opts, nil)
}

func repository(c *s3.Client, bucket string, opts Options, found *chain) (store.Store, error) {
	o := c.Options()
	if o.Region == "" {
		return nil, fmt.Errorf("%w: s3: the client has no region", store.ErrConfig)
	}
	if err := s3api.CheckRegion(o.Region); err != nil {
		return nil, fmt.Errorf("%w: s3: %w", store.ErrConfig, err)
	}
	place, err := server(o)
	if err != nil {
		return nil, err
	}
	if place, err = in(place, bucket, opts); err != nil {
		return nil, err
	}
	if strings.Contains(bucket, ":") && (place.Endpoint == "" || !o.UsePathStyle) {
		return nil, fmt.Errorf("%w: s3: TENANT:BUCKET is a bucket of Ceph's gateway: name the gateway with endpoint=, and leave out path-style=false", store.ErrURL)
	}
	return s3api.New(&client{
		api: c, bucket: bucket, credentials: o.Credentials, chain: found, http: httpClient(o.HTTPClient),
		zone: strings.Contains(place.Host, "%"), requesterPays: opts.RequesterPays, unquoted: opts.UnquotedIfMatch, headers: opts.headers(),
	}, place), nil
}

// in returns the place of a repository on a server. If the options don't set how far conditions of puts are kept, it
// uses the value of p.Deletions.
func in(p s3api.Place, bucket string, opts Options) (_ s3api.Place, err error) {
	switch {
	case bucket == "":
		return p, fmt.Errorf("%w: s3: no bucket is named", store.ErrURL)
	case strings.Contains(bucket, ":") && !tenant.MatchString(bucket):
		return p, fmt.Errorf("%w: s3: it is s3://BUCKET/PREFIX, or s3://TENANT:BUCKET/PREFIX on Ceph's gateway; a server's address goes into endpoint=", store.ErrURL)
	case strings.HasSuffix(bucket, "--x-s3"):
		return p, fmt.Errorf("%w: s3: it is a directory bucket (S3 Express One Zone), which lists in no order, and can't be used: name a general purpose bucket", store.ErrURL)
	case strings.HasSuffix(bucket, "--xa-s3"):
		return p, fmt.Errorf("%w: s3: it is an access point of a directory bucket (S3 Express One Zone), which lists in no order, and can't be used: name a general purpose bucket", store.ErrURL)
	}
	p.Name, p.Bucket, p.Headers, p.Fresh = "s3", bucket, opts.headers(), opts.FreshListings
	p.Prefix, p.Conditions, err = s3api.Options(opts.Prefix, opts.Conditions, p.Deletions)
	return p, cmp.Or(err, p.Headers.Check())
}

// server returns the server of a client, and how far we can rely on its conditions. Only Amazon documents that it honours
// conditions, including the conditions of deletions
// (docs.aws.amazon.com/AmazonS3/latest/userguide/conditional-deletes.html). A program's own resolver can return any
// server.
func server(o s3.Options) (s3api.Place, error) {
	//lint:ignore SA1019 programs can still set the deprecated resolver
	if o.EndpointResolver != nil || reflect.TypeOf(o.EndpointResolverV2) != reflect.TypeOf(s3.NewDefaultEndpointResolverV2()) {
		return s3api.Place{
			Host: "the server of the client's endpoint resolver", Endpoint: "ENDPOINT", Deletions: store.Claimed,
			PlainHint: "have the resolver return an http:// URL if the server must be used without TLS",
		}, nil
	}
	if o.BaseEndpoint == nil {
		return s3api.Place{Host: "S3 in " + o.Region, Deletions: store.Kept}, nil
	}
	name, err := host(*o.BaseEndpoint)
	if err != nil {
		return s3api.Place{}, fmt.Errorf("%w: s3: %w", store.ErrConfig, err)
	}
	scheme, _, _ := strings.Cut(*o.BaseEndpoint, "://")
	return s3api.Place{
		Host: name, Endpoint: scheme + "://" + name, Deletions: store.Claimed,
		PlainHint: "write endpoint=http://" + name + " if the server must be used without TLS",
	}, nil
}

// HTTPClient returns an HTTP client for a lock's requests. It uses HTTP/1.1, so that a connection that hangs delays
// only one request. It has short timeouts for connecting, and closes idle connections after 10 s. The SDK's defaults
// mode doesn't change it. Set it in the client's [s3.Options], because config.LoadDefaultConfig uses it only if
// AWS_CA_BUNDLE isn't set.
func HTTPClient() *http.Client { return frozen(buildable()) }

// buildable returns an HTTP client to which the SDK can add the authorities of AWS_CA_BUNDLE.
func buildable() *awshttp.BuildableClient {
	return awshttp.NewBuildableClient().WithTransportOptions(httptransport.Configure)
}

// frozen returns an HTTP client whose transport New can copy. The SDK doesn't rebuild it with the timeouts of its
// defaults mode.
func frozen(c *awshttp.BuildableClient) *http.Client {
	return &http.Client{Transport: c.GetTransport()}
}

// httpClient returns an HTTP client that sends each request once, follows no redirects, and records the answers.
func httpClient(c aws.HTTPClient) aws.HTTPClient {
	var transport http.RoundTripper = roundTrips(c.Do)
	switch c := c.(type) {
	case *awshttp.BuildableClient:
		transport = c.GetTransport()
	case *http.Client:
		if transport = c.Transport; transport == nil {
			transport = http.DefaultTransport
		}
	}
	return do(httptransport.Watched(transport).RoundTrip)
}

// do makes a function an aws.HTTPClient, and roundTrips makes one an http.RoundTripper.
type (
	do         func(*http.Request) (*http.Response, error)
	roundTrips func(*http.Request) (*http.Response, error)
)

func (f do) Do(r *http.Request) (*http.Response, error) { return f(r) }

func (f roundTrips) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// host returns an endpoint's host, for messages.
func host(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" || u.RawQuery != "" || u.Fragment != "" {
		return "", errors.New("an endpoint is https://HOST or http://HOST")
	}
	if u.User != nil {
		return "", errors.New("credentials don't belong in an endpoint")
	}
	if _, err := port.Of(u); err != nil {
		return "", err
	}
	return u.Host, nil
}

// defaultRegion is the region in a signature if none is set. Most servers other than Amazon's ignore it.
const defaultRegion = "us-east-1"

// Open returns the repository that a URL names: see the package comment. It reads the configuration of the AWS command
// line, and makes no request. It returns [store.ErrURL] or [store.ErrConfig].
func Open(ctx context.Context, u *url.URL) (store.Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	load := func(ctx context.Context) (aws.Config, error) {
		return config.LoadDefaultConfig(ctx, settings(t)...)
	}
	cfg, err := load(ctx)
	if err != nil {
		return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: of the AWS SDK: %s", store.ErrConfig, strings.Join(strings.Fields(err.Error()), " "))}
	}
	found := &chain{load: load}
	credentials := cfg.Credentials
	found.current.Store(&credentials)
	cfg.Credentials = found
	if cfg.Region == "" {
		cfg.Region = defaultRegion
	}
	client := s3.NewFromConfig(cfg, func(o *s3.Options) {
		o.HTTPClient = frozen(cfg.HTTPClient.(*awshttp.BuildableClient)) // the SDK has added AWS_CA_BUNDLE to this client
		if t.endpoint != "" {
			o.BaseEndpoint = aws.String(t.endpoint)
		}
		o.HTTPSignerV4 = signer{}
		o.UsePathStyle, _ = s3api.Bool("path-style", t.pathStyle, o.BaseEndpoint != nil) // parse has checked it
	})
	if endpoint := client.Options().BaseEndpoint; endpoint != nil {
		if _, err := host(*endpoint); err != nil {
			return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: %s: %w", store.ErrConfig, endpointSource(), err)}
		}
		if setting := variant(client.Options()); setting != "" {
			return nil, &store.Error{Op: "open", Key: t.bucket, Err: fmt.Errorf("%w: %s is for Amazon's own endpoints, and another endpoint is set: unset one of the two", store.ErrConfig, setting)}
		}
	}
	return repository(client, t.bucket, t.Options, found)
}

// settings returns the settings with which the SDK reads its configuration.
func settings(t target) []func(*config.LoadOptions) error {
	options := []func(*config.LoadOptions) error{
		config.WithHTTPClient(buildable()),
		config.WithLogger(logging.Nop{}),
		// The SDK doesn't repeat requests for credentials, either.
		config.WithRetryer(func() aws.Retryer { return aws.NopRetryer{} }),
	}
	if t.profile != "" {
		options = append(options, config.WithSharedConfigProfile(t.profile))
	}
	if t.region != "" {
		options = append(options, config.WithRegion(t.region))
	}
	return options
}

// variant names the setting that demands a variant of Amazon's own endpoint, or returns "". The SDK sends no request if
// another endpoint is set, too.
func variant(o s3.Options) string {
	named := func(variable, key string) string {
		if os.Getenv(variable) != "" {
			return variable
		}
		return key + " in the AWS configuration file"
	}
	switch {
	case o.EndpointOptions.UseDualStackEndpoint == aws.DualStackEndpointStateEnabled:
		return named("AWS_USE_DUALSTACK_ENDPOINT", "use_dualstack_endpoint")
	case o.EndpointOptions.UseFIPSEndpoint == aws.FIPSEndpointStateEnabled:
		return named("AWS_USE_FIPS_ENDPOINT", "use_fips_endpoint")
	default:
		return ""
	}
}

// Check returns the store.ErrURL that Open would return for a URL, or nil. It makes no request.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// target is a parsed URL.
type target struct {
	bucket, region, endpoint, profile, pathStyle string
	Options
}

func parse(u *url.URL) (t target, err error) {
	if t.bucket = u.Host; u.Port() != "" {
		return t, fmt.Errorf("%w: s3: it is s3://BUCKET/PREFIX; a server's address goes into endpoint=", store.ErrURL)
	}
	q, err := httptransport.Query(u, append([]string{"region", "endpoint", "profile", "path-style", "conditions", "if-match", "requester-pays", "listings"}, s3api.Parameters...)...)
	t.region, t.endpoint, t.profile, t.pathStyle = q["region"], q["endpoint"], q["profile"], q["path-style"]
	t.Options = Options{Prefix: u.Path, Conditions: q["conditions"], UnquotedIfMatch: q["if-match"] == "unquoted", Encryption: q["sse"], EncryptionKey: q["sse-key"], ACL: q["acl"]}
	_, err1 := in(s3api.Place{}, t.bucket, t.Options)
	_, err2 := s3api.Bool("path-style", t.pathStyle, false)
	var err3, err4 error
	t.RequesterPays, err3 = s3api.Bool("requester-pays", q["requester-pays"], false)
	t.FreshListings, err4 = s3api.Fresh(q["listings"])
	if err := cmp.Or(err, err1, err2, err3, err4); err != nil {
		return t, err
	}
	if err := s3api.CheckRegion(t.region); err != nil {
		return t, fmt.Errorf("%w: s3: %w", store.ErrURL, err)
	}
	if quoted := q["if-match"]; quoted != "" && quoted != "quoted" && quoted != "unquoted" {
		return t, fmt.Errorf("%w: if-match= is quoted or unquoted", store.ErrURL)
	}
	if t.endpoint != "" {
		if !strings.Contains(t.endpoint, "://") {
			t.endpoint = "https://" + t.endpoint
		}
		t.endpoint = zone.ReplaceAllString(t.endpoint, "${1}%25${2}")
		if _, err := host(t.endpoint); err != nil {
			return t, fmt.Errorf("%w: s3: %w", store.ErrURL, err)
		}
	}
	return t, nil
}

// zone matches an IPv6 address with a zone, whose percent sign can be escaped or not.
var zone = lazyregexp.New(`(\[[0-9A-Fa-f:.]+)%(?:25)?([^\]%]+\])`)

// tenant matches a bucket of a tenant of Ceph's.
var tenant = lazyregexp.New(`^[A-Za-z0-9_]*:[A-Za-z0-9._-]+$`)

// endpointSource names the setting that has set an endpoint, if the URL has none.
func endpointSource() string {
	for _, name := range []string{"AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"} {
		if os.Getenv(name) != "" {
			return name
		}
	}
	return "endpoint_url in the AWS configuration file"
}
