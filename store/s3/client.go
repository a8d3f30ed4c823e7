package s3

import (
	"bytes"
	"context"
	"crypto/md5"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/aws-sdk-go-v2/service/s3/types"
	"github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
)

// client is the AWS SDK for one bucket.
type client struct {
	api         *s3.Client
	bucket      string
	credentials aws.CredentialsProvider
	unquoted    bool // ETags in If-Match
	http        aws.HTTPClient
}

var (
	_ s3api.Client             = (*client)(nil)
	_ s3api.ConditionalDeleter = (*client)(nil)
)

// once sets up a request that is sent once.
func (c *client) once(o *s3.Options) {
	o.HTTPClient = c.http
	o.Retryer = aws.NopRetryer{}
	// Put sends a checksum as a header of its own. The SDK would add a trailer, which
	// not every server understands.
	o.RequestChecksumCalculation = aws.RequestChecksumCalculationWhenRequired
	o.ResponseChecksumValidation = aws.ResponseChecksumValidationWhenRequired
}

func (c *client) Put(ctx context.Context, key string, body []byte, ifAbsent bool, ifMatch string) error {
	// Buckets with Object Lock want a checksum, and every server knows this one.
	sum := md5.Sum(body)
	in := &s3.PutObjectInput{
		Bucket: &c.bucket, Key: &key, Body: bytes.NewReader(body), ContentLength: aws.Int64(int64(len(body))),
		ContentType: aws.String("application/json"), ContentMD5: aws.String(base64.StdEncoding.EncodeToString(sum[:])),
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

// tag returns an ETag for If-Match: in quotes (RFC 9110, section 8.8.3), except for Ceph's
// gateway, which compares the header with an ETag without quotes.
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

func (c *client) List(ctx context.Context, prefix, cursor string) ([]store.Object, string, error) {
	in := &s3.ListObjectsV2Input{Bucket: &c.bucket, Prefix: &prefix}
	if cursor != "" {
		in.ContinuationToken = &cursor
	}
	out, err := c.api.ListObjectsV2(ctx, in, c.once)
	if err != nil {
		return nil, "", err
	}
	objects := make([]store.Object, 0, len(out.Contents))
	for _, o := range out.Contents {
		objects = append(objects, store.Object{
			Key: aws.ToString(o.Key), ETag: aws.ToString(o.ETag), Size: aws.ToInt64(o.Size), ModTime: aws.ToTime(o.LastModified),
		})
	}
	if !aws.ToBool(out.IsTruncated) {
		return objects, "", nil
	}
	next := aws.ToString(out.NextContinuationToken)
	if next == "" {
		return nil, "", errors.New("a listing goes on, and the server doesn't say where")
	}
	return objects, next, nil
}

func (c *client) Delete(ctx context.Context, key, version string) error {
	in := &s3.DeleteObjectInput{Bucket: &c.bucket, Key: &key}
	if version != "" {
		in.VersionId = &version
	}
	_, err := c.api.DeleteObject(ctx, in, c.once)
	return err
}

// DeleteAll has the server name each key in its answer. Many servers want Content-MD5, which the
// SDK has replaced by a checksum of Amazon's own.
func (c *client) DeleteAll(ctx context.Context, keys []string) ([]s3api.Deleted, error) {
	objects := make([]types.ObjectIdentifier, len(keys))
	for i := range keys {
		objects[i].Key = &keys[i]
	}
	in := &s3.DeleteObjectsInput{Bucket: &c.bucket, Delete: &types.Delete{Objects: objects, Quiet: aws.Bool(false)}}
	out, err := c.api.DeleteObjects(ctx, in, c.once, func(o *s3.Options) {
		o.APIOptions = append(o.APIOptions, smithyhttp.AddContentChecksumMiddleware)
	})
	if err != nil {
		return nil, err
	}
	deleted := make([]s3api.Deleted, len(out.Deleted))
	for i, d := range out.Deleted {
		deleted[i] = s3api.Deleted{Key: aws.ToString(d.Key), Marker: aws.ToString(d.DeleteMarkerVersionId)}
	}
	return deleted, nil
}

func (c *client) DeleteIfMatch(ctx context.Context, key, ifMatch string) error {
	_, err := c.api.DeleteObject(ctx, &s3.DeleteObjectInput{Bucket: &c.bucket, Key: &key, IfMatch: c.tag(ifMatch)}, c.once)
	return err
}

func (c *client) Versions(ctx context.Context, key string) ([]s3api.Version, error) {
	out, err := c.api.ListObjectVersions(ctx, &s3.ListObjectVersionsInput{Bucket: &c.bucket, Prefix: &key}, c.once)
	if err != nil {
		return nil, err
	}
	return merge(out.Versions, out.DeleteMarkers), nil
}

// merge sorts versions and markers, which the SDK returns apart, into one list. Of two with
// the same age the marker counts as the newer one, so that it stays.
func merge(versions []types.ObjectVersion, markers []types.DeleteMarkerEntry) []s3api.Version {
	var all []s3api.Version
	for len(versions) > 0 || len(markers) > 0 {
		if len(markers) == 0 || len(versions) > 0 && before(versions[0], markers[0]) {
			all = append(all, s3api.Version{Key: aws.ToString(versions[0].Key), ID: aws.ToString(versions[0].VersionId)})
			versions = versions[1:]
			continue
		}
		all = append(all, s3api.Version{Key: aws.ToString(markers[0].Key), ID: aws.ToString(markers[0].VersionId), Marker: true})
		markers = markers[1:]
	}
	return all
}

func before(v types.ObjectVersion, m types.DeleteMarkerEntry) bool {
	if vk, mk := aws.ToString(v.Key), aws.ToString(m.Key); vk != mk {
		return vk < mk
	}
	if aws.ToBool(v.IsLatest) || aws.ToBool(m.IsLatest) {
		return aws.ToBool(v.IsLatest)
	}
	return aws.ToTime(v.LastModified).After(aws.ToTime(m.LastModified))
}

func (c *client) Versioning(ctx context.Context) (bool, error) {
	out, err := c.api.GetBucketVersioning(ctx, &s3.GetBucketVersioningInput{Bucket: &c.bucket}, c.once)
	if err != nil {
		return false, err
	}
	return out.Status == types.BucketVersioningStatusEnabled, nil
}

func (c *client) ObjectLock(ctx context.Context) (bool, error) {
	out, err := c.api.GetObjectLockConfiguration(ctx, &s3.GetObjectLockConfigurationInput{Bucket: &c.bucket}, c.once)
	if err != nil {
		return false, err
	}
	return out.ObjectLockConfiguration != nil && out.ObjectLockConfiguration.ObjectLockEnabled == types.ObjectLockEnabledEnabled, nil
}

// roleTimeout bounds the search for credentials: most machines have no service on their
// network that knows a role.
const roleTimeout = 5 * time.Second

// Signable replaces the SDK's error, which is long. The SDK caches credentials until they
// expire.
func (c *client) Signable(ctx context.Context) error {
	if c.credentials == nil {
		return nil
	}
	asked, cancel := context.WithTimeout(ctx, roleTimeout)
	defer cancel()
	_, err := c.credentials.Retrieve(asked)
	if err == nil {
		return nil
	}
	why := err
	if asked.Err() != nil {
		why = asked.Err()
	}
	if passing := c.passing(why); passing != nil {
		return passing
	}
	return fmt.Errorf("no AWS credentials are found: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or a profile (%s)", s3api.Innermost(err))
}

// passing returns an s3api.PassingError if the same search for credentials might succeed later. Without
// any setting the SDK asks Amazon's service for machines, and if that is silent there is none.
func (c *client) passing(err error) error {
	var answer interface{ HTTPStatusCode() int }
	answered := errors.As(err, &answer) && answer.HTTPStatusCode() != 0
	var unreadable *smithy.DeserializationError
	source, known := c.credentials.(aws.CredentialProviderSource)
	switch {
	case answered && throttled.IsErrorRetryable(err) == aws.TrueTernary:
		return s3api.StatusPasses(http.StatusTooManyRequests)
	case answered:
		return s3api.StatusPasses(answer.HTTPStatusCode())
	case known && slices.Equal(source.ProviderSources(), []aws.CredentialSource{aws.CredentialSourceIMDS}):
		return nil
	case errors.As(err, &unreadable):
		return s3api.PassingError{Why: "the answer of their service can't be read"}
	}
	return s3api.FailurePasses(err)
}

// throttled finds refusals of Amazon's STS that might pass although their status is 400.
var throttled = retry.IsErrorRetryables{
	retry.RetryableErrorCode{Codes: retry.DefaultThrottleErrorCodes},
	retry.RetryableErrorCode{Codes: map[string]struct{}{"IDPCommunicationError": {}}},
}
