package s3api

import (
	"cmp"
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// request is one request to the server, and then its answer.
type request struct {
	op, key     string
	permission  string // the permission that the request needs
	conditional bool
	ifMatch     bool
	root        string // name of the root element of a success, or "" if a success has no document
	limit       int64  // of a get: the largest object to read, in bytes
	answer      *httptransport.Answer
}

// ifAbsent reports whether the request is a put with If-None-Match.
func (r *request) ifAbsent() bool { return r.op == "put" && r.conditional && !r.ifMatch }

// deletes reports whether the request deletes a single object or version.
func (r *request) deletes() bool { return r.op == "delete" && r.root == "" }

func (r *request) failed(err error) error { return &store.Error{Op: r.op, Key: r.key, Err: err} }

// maxAnswer is the number of bytes that we read of an answer. Any list of 1000 objects is smaller.
const maxAnswer = 16 << 20

// leastRead is the number of bytes that we read at least of an object, because one of S3's errors can be in its place.
const leastRead = 4 << 10

// do sends a request. If the server refuses it for a reason that might be temporary, or for credentials that were
// replaced meanwhile, do sends it a second time. That is safe, because a refused request did nothing. It returns the
// document of a success, or else an error.
func (s *Store) do(ctx context.Context, r *request, send func(context.Context) error) (document, error) {
	watched, answer := httptransport.Watch(ctx, s.place.Own)
	answer.Whole(maxAnswer)
	if r.op == "get" {
		answer.Whole(max(r.limit, leastRead))
	}
	r.answer = answer
	err := store.CheckKey(r.key)
	switch {
	case r.op == "list": // the key of a list is a prefix
	case err != nil && r.op == "delete":
		return document{}, r.failed(fmt.Errorf("%w: only the store's own tools can delete it, for example: %s", err, s.place.deletion(r.key)))
	case err != nil:
		return document{}, r.failed(err)
	case r.op == "put" && r.conditional && s.place.Conditions == store.Unsupported:
		return document{}, r.failed(store.ErrConditionUnsent)
	}
	used, err := s.signable(watched)
	if err != nil {
		return document{}, r.failed(err)
	}
	err = send(watched)
	if (err != nil || r.fails()) && (s.renewed(watched, r, used) || r.passing()) {
		s.heard.Store(true)
		answer.Reset()
		err = send(watched)
	}
	if err == nil && answer.Status() == 0 {
		err = errors.New("the client made no request")
	}
	got, err := s.meaning(ctx, r, err)
	if err != nil {
		return document{}, r.failed(err)
	}
	return got, nil
}

// passing reports whether the server might accept the same request the next time. If it refused the time in the
// signature, the library now knows the server's time. MinIO refuses a put with AccessDenied while the last other object
// below the same prefix is being deleted (github.com/minio/minio/issues/12914).
func (r *request) passing() bool {
	switch r.refusal().Code {
	case "RequestTimeTooSkewed":
		return true
	case "AccessDenied":
		return r.op == "put"
	default:
		return false
	}
}

// meaning returns the document of a success, or the error for any other answer. It uses the client library's error only
// if there is no answer, or if the library can't read a success.
func (s *Store) meaning(ctx context.Context, r *request, err error) (document, error) {
	status := r.answer.Status()
	switch {
	case err != nil && ctx.Err() != nil:
		err := fmt.Errorf("%s: %w", s.place.Host, ctx.Err())
		if !r.answer.Begun() {
			return document{}, store.Unreachable(err)
		}
		return document{}, err
	case status == 0:
		return document{}, r.answer.Unanswered(s.place.Host, s.place.PlainHint,
			"have its authority trusted by this machine, or named by AWS_CA_BUNDLE", cmp.Or(r.answer.Err(), err))
	case r.isPage():
		return document{}, s.broken(r, unfit("it answers with a web page"))
	case status >= 300, r.fails():
		return document{}, s.refused(r, status, r.refusal())
	}
	got, broken := document{}, r.answer.Err()
	if broken == nil {
		got, broken = r.success()
	}
	if err = cmp.Or(broken, err); err != nil {
		return document{}, s.broken(r, err)
	}
	return got, nil
}

// success returns the document of a success, or an error if the answer doesn't have the form of S3's successes.
func (r *request) success() (got document, err error) {
	status, body, want := r.answer.Status(), r.answer.Body(), http.StatusOK
	if r.deletes() {
		want = http.StatusNoContent
	}
	switch encoding := r.packed(); {
	case encoding != "" && r.root != "":
		return got, fault.Advise(fault.New(store.ErrConfig, "it sends answers compressed by %s, although no request asks for that", encoding),
			"let the proxy before the server pass answers unchanged")
	case encoding != "" && r.op == "get":
		return got, fmt.Errorf("it is compressed by %s, although the request didn't ask for that", encoding)
	case r.deletes() && status == http.StatusOK: // a proxy that drops the deletion answers like this
		return got, unfit("it answers a deletion with 200")
	case status != want:
		return got, fmt.Errorf("it answers %d, which isn't a success of S3's", status)
	case r.op == "get" && r.answer.Header("Etag") == "":
		return got, unfit("it answers with an object without an ETag")
	case r.op == "get" && r.answer.Endless(): // an empty body means that the lock was released
		return got, errors.New("the object has no length, so it might be cut off")
	case r.op != "get" && len(body) > maxAnswer:
		return got, unfit(fmt.Sprintf("it answers with more than %d MiB", maxAnswer>>20))
	case r.root != "":
		return read(r.root, body)
	}
	return got, nil
}

// packed returns the name of a compression that we can't unpack, or "". Only gzip is unpacked. A body that begins like a
// lock or a document isn't compressed, whatever its Content-Encoding is: that can be a property of the stored object.
func (r *request) packed() string {
	body := r.answer.Body()
	if len(body) == 0 || body[0] == '{' || body[0] == '<' {
		return ""
	}
	for encoding := range strings.SplitSeq(strings.ToLower(r.answer.Header("Content-Encoding")), ",") {
		if encoding = strings.TrimSpace(encoding); slices.Contains([]string{"br", "zstd", "deflate", "compress"}, encoding) {
			return encoding
		}
	}
	return ""
}

// fails reports whether the body of a success is one of S3's errors. Some servers send 200 before they know the result.
// The body of an object counts as an error only if the answer isn't the object itself: it has no ETag, or is called a
// document.
func (r *request) fails() bool {
	if r.answer.Status() != http.StatusOK || r.refusal().Code == "" {
		return false
	}
	kind := r.answer.Header("Content-Type")
	return r.op != "get" || r.answer.Header("Etag") == "" || strings.Contains(kind, "xml") || strings.Contains(kind, "html")
}

// isPage reports whether an answer is the web page of another kind of server. If an S3 server fails or is throttling, a
// page doesn't count, because load balancers send pages too. An object, an empty body or one of S3's refusals is no
// page, because Swift and moto send text/html with every answer.
func (r *request) isPage() bool {
	return r.op != "get" && !httptransport.Passing(r.answer.Status()) && len(r.answer.Body()) > 0 &&
		strings.HasPrefix(r.answer.Header("Content-Type"), "text/html") && r.refusal().Code == ""
}

// unfit returns the store.ErrConfig for a server that can't be an object store.
func unfit(why string) error {
	return fault.New(store.ErrConfig, "the server there isn't an object store: %s", why)
}

// broken returns the error for a success whose content is unusable.
func (s *Store) broken(r *request, why error) error {
	switch {
	case errors.Is(why, store.ErrConfig):
		return fmt.Errorf("%w: %s: %w", store.ErrConfig, s.speaker(r), why)
	case errors.Is(why, store.ErrListing):
		return fmt.Errorf("%s: %w", s.place.Host, why)
	default:
		return fmt.Errorf("%s: the answer can't be read: %w", s.place.Host, httptransport.Innermost(why))
	}
}

// refusal is the body of an error answer as the server sent it. The client libraries replace an empty body by their own
// texts.
type refusal struct{ Code, Message, Region, Endpoint string }

// refusal parses the body of an error answer. It returns the zero refusal if the body isn't in S3's form.
func (r *request) refusal() refusal {
	var said struct {
		XMLName xml.Name `xml:"Error"`
		refusal
	}
	if xml.Unmarshal(r.answer.Body(), &said) != nil {
		return refusal{}
	}
	return refusal{text.Cut(text.Line(said.Code), maxCode), text.Ends(said.Message, maxMessage), cmp.Or(text.Line(said.Region), expected(said.Message)), text.Line(said.Endpoint)}
}

// maxCode and maxMessage are the lengths in bytes of a refusal's code and message in our messages. Amazon's message about
// a policy has 300 bytes if the names are long. It ends with the reason.
const (
	maxCode    = 64
	maxMessage = 300
)

var expecting = lazyregexp.New(`expecting ['"]?([A-Za-z0-9._-]{1,63})`)

// expected returns the region that a message alone names, as "the region 'us-east-1' is wrong; expecting 'eu-west-1'",
// or "".
func expected(message string) string {
	if m := expecting.FindStringSubmatch(message); m != nil {
		return m[1]
	}
	return ""
}

// speaker names the server, and a proxy that might have answered instead, for messages.
func (s *Store) speaker(r *request) string {
	if proxy := r.answer.Proxy(); proxy != "" {
		return fmt.Sprintf("%s (through the proxy %s)", s.place.Host, proxy)
	}
	return s.place.Host
}

// refused returns the error for an error answer. If the server fails (5xx), its code doesn't explain the request. But
// one of S3's codes shows that the store itself was reached.
func (s *Store) refused(r *request, status int, refusal refusal) error {
	said := fmt.Sprintf("%s answers %d", s.speaker(r), status)
	if refusal.Code != "" {
		said += " " + refusal.Code
	}
	if refusal.Message != "" {
		said += ": " + refusal.Message
	}
	temporary := errors.New(said) // for 429, and for any answer without another error
	switch {
	case status < 300 && !slices.Contains(slices.Concat(expired, unknown), refusal.Code): // whatever its code, it might be carried out
		return temporary
	case httptransport.Down(status) && refusal.Code == "":
		return store.Unreachable(temporary)
	case status == http.StatusInsufficientStorage, slices.Contains(full, refusal.Code):
		return fmt.Errorf("%w: %w", store.ErrFull, temporary)
	case status >= 500 && status != http.StatusNotImplemented:
		return temporary
	}
	return cmp.Or(s.byCode(r, refusal, said), s.byStatus(r, status, refusal, said), temporary)
}

// byCode returns the error for a refusal's code. It returns nil if the status must decide.
func (s *Store) byCode(r *request, refusal refusal, said string) error {
	switch {
	case slices.Contains(expired, refusal.Code):
		return fmt.Errorf("%w: the credentials have expired (%s)", store.ErrCredentials, said)
	case slices.Contains(unknown, refusal.Code):
		return fmt.Errorf("%w: the credentials are wrong (%s)", store.ErrCredentials, said)
	}
	switch refusal.Code {
	case "NoSuchBucket":
		return fmt.Errorf("bucket %q: %w", s.place.Bucket, store.ErrNotFound)
	case "SignatureDoesNotMatch":
		if r.conditional { // if a server or a proxy drops the header, the signature is wrong
			return fmt.Errorf("%w: %s", store.ErrConditionUnsupported, said)
		}
		return fault.Advise(fmt.Errorf("%w: the signature is refused: the secret key is wrong, a proxy changes the request, or a clock is wrong: this machine's is %s (%s)",
			store.ErrCredentials, s.offset(r.answer), said), signatureAdvice)
	case "KMS.NotFoundException", "KMS.DisabledException", "KMS.InvalidKeyUsageException", "KMS.KMSInvalidStateException", "KMS.InvalidStateException":
		return fmt.Errorf("%w: the key of the encryption can't be used: check sse-key= in the URL, and the bucket's default key (%s)", store.ErrConfig, said)
	case "AccessControlListNotSupported":
		return fmt.Errorf("%w: the bucket takes no ACLs: leave acl= out of the URL (%s)", store.ErrConfig, said)
	case "RequestTimeTooSkewed":
		return fmt.Errorf("%w: this machine's clock is %s, so the server refuses its signatures: set the clock",
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

// signatureAdvice is what to do if a signature is refused.
const signatureAdvice = "check the secret key and the clock; a proxy before the server must pass the path, Host, Content-MD5 and the x-amz- headers unchanged (nginx: proxy_set_header Host $http_host)"

// needs returns the permission that a refused request needs. A policy can also demand a header of a put.
func (s *Store) needs(r *request) string {
	needs := fmt.Sprintf("%s on bucket %q", r.permission, s.place.Bucket)
	if r.op == "put" && s.place.Headers == (PutHeaders{}) {
		needs += ", and sse= or acl= in the URL if its policy demands them"
	}
	return needs
}

// byStatus returns the error for a refusal's status, or nil.
func (s *Store) byStatus(r *request, status int, refusal refusal, said string) error {
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
	case status == http.StatusNotFound && len(r.answer.Body()) == 0 && r.op != "get":
		return s.broken(r, unfit("it answers 404 without a word"))
	case status == 401, status == 403:
		return fmt.Errorf("%w: %s needs %s (%s)", store.ErrPermission, r.op, s.needs(r), said)
	case status == 400 && refusal.Code == "":
		return fmt.Errorf("%w: %s, which isn't an object store's answer: check the endpoint, and whether it needs TLS", store.ErrConfig, said)
	}
	return nil
}

// unconditional are the statuses with which some servers refuse every request that has a condition. 403 isn't among
// them, and byStatus handles it itself: a policy can refuse If-None-Match with it, but for If-Match it means a missing
// permission.
var unconditional = []int{304, 400, 405, 411, 422, 428}

// full are the error codes for a lack of space, or for a used up quota.
var full = []string{
	"XMinioStorageFull", "XMinioAdminBucketQuotaExceeded", "XMinioBucketQuotaExceeded",
	"QuotaExceeded", "QuotaExceededException", "InsufficientStorage",
}

func (s *Store) wrongRegion(r *request, refusal refusal, said string) error {
	if region := cmp.Or(text.Line(r.answer.Header("X-Amz-Bucket-Region")), refusal.Region); region != "" {
		return fmt.Errorf("%w: bucket %q is in region %s: put region=%s into the URL (%s)", store.ErrConfig, s.place.Bucket, region, region, said)
	}
	at := "at another endpoint"
	if refusal.Endpoint != "" {
		at = "at the endpoint " + refusal.Endpoint
	}
	return fmt.Errorf("%w: bucket %q is in another region, or %s (%s)", store.ErrConfig, s.place.Bucket, at, said)
}

// offset describes how far this machine's clock is from the server's.
func (s *Store) offset(a *httptransport.Answer) string {
	date := a.Date()
	if date.IsZero() {
		return "far from the server's"
	}
	d := s.now().Sub(date).Round(time.Second)
	if d > 0 {
		return text.Offset(d) + " ahead of the server's"
	}
	return text.Offset(-d) + " behind the server's"
}
