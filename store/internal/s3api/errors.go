package s3api

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/xml"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"strings"
	"time"
	"unicode"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// request is one request to the server, for judging what became of it.
type request struct {
	op, key     string
	permission  string // that it needs
	conditional bool
	ifMatch     bool
	answer      *web.Answer
}

// failed gives an error of a client library the meaning that package store has
// for it, in one line.
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
		return fmt.Errorf("%w: %s: %w", store.ErrConfig, s.place.Host, why)
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

// refusal is an error answer in S3's words. The client libraries put words of
// their own where the server has none.
type refusal struct {
	Code    string `xml:"Code"`
	Message string `xml:"Message"`
	Region  string `xml:"Region"`
}

func refused(a *web.Answer) refusal {
	if a.Status() < 300 {
		return refusal{}
	}
	return inWords(a.Refusal())
}

// inWords reads the body of a refusal; one that isn't S3's says nothing.
func inWords(raw []byte) refusal {
	var body struct {
		XMLName xml.Name `xml:"Error"`
		refusal
	}
	if xml.Unmarshal(raw, &body) != nil {
		return refusal{}
	}
	return refusal{tame(body.Code), tame(body.Message), tame(body.Region)}
}

// tame is what a server says, fit for one line of a terminal.
func tame(s string) string {
	line := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	if line = strings.Join(strings.Fields(line), " "); len(line) > maxSaid {
		line = strings.ToValidUTF8(line[:maxSaid], "")
	}
	return line
}

// maxSaid is as much of a server's own words as is told.
const maxSaid = 200

// refused: the server answered, and didn't do it.
func (s *Store) refused(r request, status int, refusal refusal) error {
	said := fmt.Sprintf("%s answers %d", s.place.Host, status)
	if refusal.Code != "" {
		said += " " + refusal.Code
	}
	switch {
	case web.Down(status):
		return store.Unreachable(errors.New(said + explained(refusal)))
	case status == http.StatusInsufficientStorage, full(refusal.Code):
		return fmt.Errorf("%w: %s", store.ErrFull, said+explained(refusal))
	case status >= 500 && status != http.StatusNotImplemented:
		// A server that fails says nothing of us, whatever code it gives.
		return errors.New(said + explained(refusal))
	}
	switch refusal.Code {
	case "NoSuchBucket":
		return fmt.Errorf("bucket %q: %w", s.place.Bucket, store.ErrNotFound)
	case "ExpiredToken", "ExpiredTokenException", "TokenRefreshRequired", "RequestExpired":
		return fmt.Errorf("%w: the credentials have expired (%s)", store.ErrCredentials, said)
	case "InvalidAccessKeyId", "SignatureDoesNotMatch", "InvalidToken", "InvalidTokenId", "InvalidSecurity":
		return fmt.Errorf("%w: the credentials are wrong (%s)", store.ErrCredentials, said)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%w: this machine's clock is %s, too far for the server to take its signature: set it right",
			store.ErrConfig, s.offset(r.answer))
	case "PermanentRedirect", "AuthorizationHeaderMalformed", "TemporaryRedirect", "IllegalLocationConstraintException", "InvalidRegion":
		return s.wrongRegion(r, refusal, said)
	case "InvalidBucketName":
		return fmt.Errorf("%w: %q can't be a bucket's name (%s)", store.ErrConfig, s.place.Bucket, said)
	case "NotImplemented":
		if r.conditional {
			return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
		}
		return fmt.Errorf("%w: %s", store.ErrConfig, said)
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
	switch {
	case status == 412 && r.conditional:
		return fmt.Errorf("%w: %s", store.ErrPrecondition, said)
	case status == 501 && r.conditional:
		return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
	case status == 301, status == 302, status == 307, status == 308:
		return s.wrongRegion(r, refusal, said)
	case status == 401, status == 403:
		return fmt.Errorf("%w: %s needs %s on bucket %q (%s)", store.ErrPermission, r.op, r.permission, s.place.Bucket, said)
	case status == 400 && refusal.Code == "":
		return fmt.Errorf("%w: %s, and not as an object store does: is it the endpoint, and does it want TLS?", store.ErrConfig, said)
	}
	// 409, 429 and whatever else: it may be otherwise the next time.
	return errors.New(said + explained(refusal))
}

// full reports whether a refusal's code is one for want of space: MinIO's, Ceph's, and
// those of servers that have quotas.
func full(code string) bool {
	switch code {
	case "XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "XMinioBucketQuotaExceeded", "QuotaExceeded", "QuotaExceededException", "InsufficientStorage":
		return true
	}
	return false
}

func explained(r refusal) string {
	if r.Message == "" {
		return ""
	}
	return ": " + r.Message
}

func (s *Store) wrongRegion(r request, refusal refusal, said string) error {
	if region := cmp.Or(tame(r.answer.Header("X-Amz-Bucket-Region")), refusal.Region); region != "" {
		return fmt.Errorf("%w: bucket %q is in region %s: put region=%s into the URL (%s)", store.ErrConfig, s.place.Bucket, region, region, said)
	}
	return fmt.Errorf("%w: bucket %q is in another region, or at another endpoint (%s)", store.ErrConfig, s.place.Bucket, said)
}

// offset says how far this machine's clock is from the server's.
func (s *Store) offset(a *web.Answer) string {
	date := a.Date()
	if date.IsZero() {
		return "far from the server's"
	}
	switch d := s.now().Sub(date).Round(time.Second); {
	case d > 0:
		return d.String() + " ahead of the server's"
	default:
		return (-d).String() + " behind the server's"
	}
}

// unanswered: no answer came, and the request may have been carried out.
func (s *Store) unanswered(r request, err error) error {
	var (
		record     tls.RecordHeaderError
		authority  x509.UnknownAuthorityError
		hostname   x509.HostnameError
		invalid    x509.CertificateInvalidError
		dns        *net.DNSError
		transport  *url.Error
		connection *net.OpError
	)
	switch {
	case errors.As(err, &record), strings.Contains(err.Error(), "server gave HTTP response to HTTPS client"):
		return fmt.Errorf("%w: %s speaks no TLS: %s", store.ErrConfig, s.place.Host, s.place.PlainHint)
	case strings.Contains(err.Error(), tlsAlert):
		return fmt.Errorf("%w: %s wants TLS: write https:// in endpoint=, or leave out tls=false", store.ErrConfig, s.place.Host)
	case errors.As(err, &authority):
		return fmt.Errorf("%w: the certificate of %s isn't to be trusted: %s: have its authority trusted by this machine, or named by AWS_CA_BUNDLE",
			store.ErrConfig, s.place.Host, Innermost(err))
	case errors.As(err, &hostname), errors.As(err, &invalid):
		return fmt.Errorf("%w: the certificate of %s isn't to be trusted: %s", store.ErrConfig, s.place.Host, Innermost(err))
	case errors.As(err, &connection) && connection.Op == "remote error", strings.HasPrefix(Innermost(err).Error(), "tls: "):
		return fmt.Errorf("%w: no TLS with %s: %s", store.ErrConfig, s.place.Host, Innermost(err))
	case errors.As(err, &dns) && dns.IsNotFound:
		return fmt.Errorf("%s: %w", s.place.Host, store.ErrNoHost)
	case errors.As(err, &connection):
		err = fmt.Errorf("%s: %w", s.place.Host, connection)
	case errors.As(err, &transport):
		err = fmt.Errorf("%s: %w", s.place.Host, transport.Err)
	default:
		err = fmt.Errorf("%s: %w", s.place.Host, Innermost(err))
	}
	if r.answer.Silence() {
		return store.Unreachable(err)
	}
	return err
}

// tlsAlert is how package net/http words what most servers that want TLS answer to
// one who speaks without: an alert, which is type 21 of version 3.
const tlsAlert = `malformed HTTP response "\x15\x03`

// Innermost is the last of a chain of errors, where the libraries' are long.
func Innermost(err error) error {
	for {
		next := errors.Unwrap(err)
		if next == nil {
			return err
		}
		err = next
	}
}
