package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"io"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/repolock/repolock/store/internal/s3api"
)

// client is the AWS SDK for one bucket.
type client struct {
	api         *s3.Client
	bucket      string
	credentials aws.CredentialsProvider
	chain       *chain // where Open finds the credentials, or nil
	zone        bool   // the endpoint is an IPv6 address with a zone
	// requesterPays adds the header with which we consent to pay for each request.
	requesterPays bool
	unquoted      bool // If-Match sends ETags without quotes
	headers       s3api.PutHeaders
	http          aws.HTTPClient
}

var _ s3api.Client = (*client)(nil)

// once makes the SDK send a request once, without the retries of the program's client.
func (c *client) once(o *s3.Options) {
	o.HTTPClient = c.http
	o.Retryer = aws.NopRetryer{}
	// Put sends a checksum in a header. The SDK would add one in a trailer, which some servers don't understand.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
	if c.requesterPays || c.zone {
		o.APIOptions = append(o.APIOptions, c.complete)
	}
	signLess(o)
}

// complete adds steps around the signature to the stack of a request. The signature covers Host as Go sends it, without a
// zone, and the header of requesterPays. Host is set only for the signature, because the SDK refuses a Host with an
// IPv6 address. Go makes the same Host from the URL.
func (c *client) complete(stack *middleware.Stack) error {
	if _, ok := stack.Finalize.Get(signing); !ok {
		return nil
	}
	if err := stack.Finalize.Insert(step("ForgetHost", func(r *smithyhttp.Request) { r.Host = "" }), signing, middleware.After); err != nil {
		return err
	}
	return stack.Finalize.Insert(step("Complete", func(r *smithyhttp.Request) {
		if c.zone {
			r.Host = zone.ReplaceAllString(r.URL.Host, "${1}]")
		}
		if c.requesterPays {
			r.Header.Set("X-Amz-Request-Payer", "requester")
		}
	}), signing, middleware.Before)
}

func (c *client) Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error {
	// Buckets with Object Lock need a checksum, and every server knows this checksum.
	sum := md5.Sum(body)
	in := &s3.PutObjectInput{
		Bucket: &c.bucket, Key: &key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), ContentMD5: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
	}
	in.ServerSideEncryption, in.ACL = types.ServerSideEncryption(c.headers.SSE), types.ObjectCannedACL(c.headers.ACL)
	if c.headers.SSEKey != "" {
		in.SSEKMSKeyId = &c.headers.SSEKey
	}
	if ifAbsent {
		in.IfNoneMatch = aws.String("*")
	}
	if ifMatch != "" {
		in.IfMatch = c.tag(ifMatch)
	}
	_, err := c.api.PutObject(ctx, in, c.once)
	return err
}

// tag returns an ETag for If-Match. It is in quotes (RFC 9110, section 8.8.3), except for Ceph's gateway, which
// compares the header with an ETag without quotes.
func (c *client) tag(etag string) *string {
	if c.unquoted {
		return &etag
	}
	return aws.String(`"` + etag + `"`)
}

func (c *client) Get(ctx context.Context, key string) (io.ReadCloser, error) {
	out, err := c.api.GetObject(ctx, &s3.GetObjectInput{Bucket: &c.bucket, Key: &key}, c.once)
	if err != nil {
		return nil, err
	}
	return out.Body, nil
}

func (c *client) List(ctx context.Context, prefix, cursor string) error {
	in := &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix}
	if cursor != "" {
		in.ContinuationToken = &cursor
	}
	_, err := c.api.ListObjectsV2(ctx, in, c.once)
	return err
}

func (c *client) Delete(ctx context.Context, key, version, ifMatch string) error {
	in := &s3.DeleteObjectInput{Bucket: &c.bucket, Key: &key}
	if version != "" {
		in.VersionId = &version
	}
	if ifMatch != "" {
		in.IfMatch = c.tag(ifMatch)
	}
	_, err := c.api.DeleteObject(ctx, in, c.once)
	return err
}

// DeleteAll asks the server to name each key in its answer. It sends Content-MD5, because many servers need it, and the
// SDK would send a checksum of Amazon's instead.
func (c *client) DeleteAll(ctx context.Context, keys []string) error {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i].Key = &keys[i]
	}
	in := &s3.DeleteObjectsInput{Bucket: &c.bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(false)}}
	_, err := c.api.DeleteObjects(ctx, in, c.once, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
	})
	return err
}

func (c *client) Versions(ctx context.Context, key string) error {
	_, err := c.api.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &c.bucket, Prefix: &key}, c.once)
	return err
}

func (c *client) Versioning(ctx context.Context) error {
	_, err := c.api.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &c.bucket}, c.once)
	return err
}

func (c *client) ObjectLock(ctx context.Context) error {
	_, err := c.api.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &c.bucket}, c.once)
	return err
}
