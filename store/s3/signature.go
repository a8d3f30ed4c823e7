package s3

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v4 "github.com/aws/aws-sdk-go-v2/aws/signer/v4"
	"github.com/aws/aws-sdk-go-v2/service/s3"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// signing is the SDK's name of the step that signs a request.
const signing = "Signing"

// signer is the SDK's signer without its memory of derived keys. That memory compares only the access key, so it would
// sign with the old secret after a rotation that keeps the access key.
type signer struct{}

func (signer) SignHTTP(ctx context.Context, c aws.Credentials, r *http.Request, payload, service, region string, now time.Time, options ...func(*v4.SignerOptions)) error {
	asS3 := func(o *v4.SignerOptions) { o.DisableURIPathEscaping = true }
	return v4.NewSigner(asS3).SignHTTP(ctx, c, r, payload, service, region, now, options...)
}

// isSigned reports whether a signature covers a header. Amazon demands that of Host, x-amz-* and Content-MD5
// (docs.aws.amazon.com/AmazonS3/latest/API/sig-v4-header-based-auth.html). A condition of a put or a deletion must be
// covered, too: if a proxy dropped it unnoticed, the request would overwrite another holder's lock. A proxy might rewrite
// any other header, such as Accept-Encoding.
func isSigned(header string) bool {
	switch header {
	case "Content-Md5", "If-Match", "If-None-Match":
		return true
	}
	return strings.HasPrefix(header, "X-Amz-")
}

// unsigned hides the headers of one request from the SDK's signer, and then sends them. The SDK itself signs all headers
// but a few, and the length.
type unsigned struct {
	header http.Header
	length int64
}

// signLess adds the two steps of an unsigned to the stack of a request. A stack that signs nothing stays as it is.
func signLess(o *s3.Options) {
	o.APIOptions = append(o.APIOptions, func(stack *middleware.Stack) error {
		if _, ok := stack.Finalize.Get(signing); !ok {
			return nil
		}
		u := &unsigned{header: http.Header{}}
		if err := stack.Finalize.Insert(step("HideUnsigned", u.hide), signing, middleware.Before); err != nil {
			return err
		}
		return stack.Finalize.Insert(step("ShowUnsigned", u.show), signing, middleware.After)
	})
}

// step returns a step of a stack that changes the request.
func step(id string, change func(*smithyhttp.Request)) middleware.FinalizeMiddleware {
	return middleware.FinalizeMiddlewareFunc(id, func(ctx context.Context, in middleware.FinalizeInput, next middleware.FinalizeHandler) (middleware.FinalizeOutput, middleware.Metadata, error) {
		r, ok := in.Request.(*smithyhttp.Request)
		if !ok {
			return middleware.FinalizeOutput{}, middleware.Metadata{}, fmt.Errorf("the request is a %T", in.Request)
		}
		change(r)
		return next.HandleFinalize(ctx, in)
	})
}

func (u *unsigned) hide(r *smithyhttp.Request) {
	for name, values := range r.Header {
		if !isSigned(http.CanonicalHeaderKey(name)) {
			u.header[name] = values
			delete(r.Header, name)
		}
	}
	u.length, r.ContentLength = r.ContentLength, 0
}

// show keeps the headers that the signer has set: Authorization is one.
func (u *unsigned) show(r *smithyhttp.Request) {
	for name, values := range u.header {
		if _, set := r.Header[name]; !set {
			r.Header[name] = values
		}
	}
	r.ContentLength = u.length
}
