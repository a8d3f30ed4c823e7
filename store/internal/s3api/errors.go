package s3api

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// request is one request to the server, for the meaning of its error.
type request struct {
	op, key     string
	permission  string // that it needs
	conditional bool
	ifMatch     bool
	answer      *httptransport.Answer
}

// ifAbsent reports whether it is a put with If-None-Match.
func (r request) ifAbsent() bool { return r.op == "put" && r.conditional && !r.ifMatch }

// failed returns an error of a client library as one of package store, in one line.
func (s *Store) failed(ctx context.Context, r request, err error) error {
	return &store.Error{Op: r.op, Key: r.key, Err: s.meaning(ctx, r, err)}
}

func (s *Store) meaning(ctx context.Context, r request, err error) error {
	if unsent := (credentialsError{}); errors.As(err, &unsent) {
		return err
	}
	if ctx.Err() != nil {
		err := fmt.Errorf("%s: %w", s.place.Host, ctx.Err())
		if !r.answer.Begun() {
			return store.Unreachable(err)
		}
		return err
	}
	if why := unfit(""); errors.As(err, &why) {
		return fmt.Errorf("%w: %s: %w", store.ErrConfig, s.speaker(r), why)
	}
	if errors.Is(err, store.ErrListing) {
		return fmt.Errorf("%s: %w", s.place.Host, err)
	}
	status, said := r.answer.Status(), refused(r.answer)
	if status == 0 {
		return s.unanswered(r, err)
	}
	if status < 300 {
		return fmt.Errorf("%s: the answer can't be read: %w", s.place.Host, Innermost(err))
	}
	return s.refused(r, status, said)
}

// refusal is the body of an error answer. The client libraries' errors have texts of their
// own if the server has none.
type refusal struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	Region  string `xml:"Region"`
}

func refused(a *httptransport.Answer) refusal { return inWords(a.Refusal()) }

// inWords parses the body of a refusal. One that isn't S3's is the zero refusal.
func inWords(raw []byte) refusal {
	var body struct {
		XMLName xml.Name `xml:"Error"`
		refusal
	}
	if xml.Unmarshal(raw, &body) != nil {
		return refusal{}
	}
	return refusal{text.Line(body.Code), text.Line(body.Message), text.Line(body.Region)}
}

// speaker names the server, and a proxy that might have answered in its place.
func (s *Store) speaker(r request) string {
	if proxy := r.answer.Proxy(); proxy != "" {
		return fmt.Sprintf("%s (through the proxy %s)", s.place.Host, proxy)
	}
	return s.place.Host
}

// refused returns the meaning of an answer that is no success. A server that fails says
// nothing of the request, whatever code it has. A code of S3's is the store's own: it was reached.
func (s *Store) refused(r request, status int, refusal refusal) error {
	said := fmt.Sprintf("%s answers %d", s.speaker(r), status)
	if refusal.Code != "" {
		said += " " + refusal.Code
	}
	explained := said
	if refusal.Message != "" {
		explained += ": " + refusal.Message
	}
	mightPass := errors.New(explained) // 409, 429 and all others
	switch {
	case httptransport.Down(status) && refusal.Code == "":
		return store.Unreachable(mightPass)
	case status == http.StatusInsufficientStorage, slices.Contains(full, refusal.Code):
		return fmt.Errorf("%w: %w", store.ErrFull, mightPass)
	case status >= 500 && status != http.StatusNotImplemented:
		return mightPass
	}
	return cmp.Or(s.byCode(r, refusal, said), s.byStatus(r, status, refusal, said), mightPass)
}

// byCode returns the meaning of a refusal's code, or nil if its status decides.
func (s *Store) byCode(r request, refusal refusal, said string) error {
	switch refusal.Code {
	case "NoSuchBucket":
		return fmt.Errorf("bucket %q: %w", s.place.Bucket, store.ErrNotFound)
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return fmt.Errorf("%w: the credentials have expired (%s)", store.ErrCredentials, said)
	case "SignatureDoesNotMatch":
		if r.ifAbsent() { // a server or a proxy that drops the header breaks the signature
			return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
		}
		fallthrough
	case "InvalidAccessKeyId", "InvalidToken", "InvalidTokenId", "InvalidSecurity":
		return fmt.Errorf("%w: the credentials are wrong (%s)", store.ErrCredentials, said)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%w: this machine's clock is %s, too far for the server to take its signature: set it right",
			store.ErrConfig, s.offset(r.answer))
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect", "IllegalLocationConstraintException", "InvalidRegion":
		return s.wrongRegion(r, refusal, said)
	case "InvalidBucketName":
		return fmt.Errorf("%w: %q can't be a bucket's name (%s)", store.ErrConfig, s.place.Bucket, said)
	case "NotImplemented":
		if !r.conditional {
			return fmt.Errorf("%w: %s", store.ErrConfig, said)
		}
		return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
	case "InvalidRequest", "InvalidArgument":
		if r.conditional {
			return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
		}
	case "NoSuchKey":
		if r.ifMatch {
			return store.ErrPrecondition
		}
		return store.ErrNotFound
	}
	return nil
}

// byStatus returns the meaning of a refusal's status, or nil if it has none of its own.
func (s *Store) byStatus(r request, status int, refusal refusal, said string) error {
	switch {
	case status == 412 && r.conditional:
		return fmt.Errorf("%w: %s", store.ErrPrecondition, said)
	case status == 501 && r.conditional, status == 403 && r.ifAbsent(),
		r.conditional && slices.Contains(unconditional, status) && refusal.Code != "RequestTimeout" && (status != 400 || refusal.Code != ""):
		return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
	case status == 409:
		return fmt.Errorf("%w: %s", store.ErrConflict, said)
	case status == 301, status == 302, status == 307, status == 308:
		return s.wrongRegion(r, refusal, said)
	case status == http.StatusProxyAuthRequired:
		return fmt.Errorf("%w: %s: the proxy wants a user and a password", store.ErrConfig, said)
	case status == 401, status == 403:
		return fmt.Errorf("%w: %s needs %s on bucket %q (%s)", store.ErrPermission, r.op, r.permission, s.place.Bucket, said)
	case status == 400 && refusal.Code == "":
		return fmt.Errorf("%w: %s, and not as an object store does: is it the endpoint, and does it want TLS?", store.ErrConfig, said)
	}
	return nil
}

// unconditional are the statuses with which servers were seen to refuse each request that has a condition. A
// policy refuses it with 403, which says nothing of an If-Match that was taken before.
var unconditional = []int{304, 400, 405, 411, 422, 428}

// full are the codes that mean that there is no space left, or a quota is used up.
var full = []string{
	"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "XMinioBucketQuotaExceeded",
	"QuotaExceeded", "QuotaExceededException", "InsufficientStorage",
}

func (s *Store) wrongRegion(r request, refusal refusal, said string) error {
	if region := cmp.Or(text.Line(r.answer.Header("X-Amz-Bucket-Region")), refusal.Region); region != "" {
		return fmt.Errorf("%w: bucket %q is in region %s: put region=%s into the URL (%s)", store.ErrConfig, s.place.Bucket, region, region, said)
	}
	return fmt.Errorf("%w: bucket %q is in another region, or at another endpoint (%s)", store.ErrConfig, s.place.Bucket, said)
}

// offset returns how far this machine's clock is from the server's.
func (s *Store) offset(a *httptransport.Answer) string {
	date := a.Date()
	if date.IsZero() {
		return "far from the server's"
	}
	d := s.now().Sub(date).Round(time.Second)
	if d > 0 {
		return d.String() + " ahead of the server's"
	}
	return (-d).String() + " behind the server's"
}

// deletion returns the command with which a person deletes an object whose key is invalid.
func (p Place) deletion(key string) string {
	command := "aws s3api delete-object"
	if p.Endpoint != "" {
		command += " --endpoint-url " + text.ShellWord(p.Endpoint)
	}
	return command + " --bucket " + text.ShellWord(p.Bucket) + " --key " + text.ShellWord(p.Prefix+key)
}
