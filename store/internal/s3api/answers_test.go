package s3api_test

import (
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httptrace"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/s3api"
)

// explicitDeny is a message of Amazon's, whose end is the reason.
var explicitDeny = "User: arn:aws:iam::123456789012:user/" + strings.Repeat("b", 64) + " is not authorized to perform: s3:PutObject on resource: " +
	"&quot;arn:aws:s3:::" + strings.Repeat("c", 63) + "/prefix/index/lock.shared/20261128T045730.123456789Z-0123456789abcdef&quot; with an explicit deny in a resource-based policy"

// TestAnswers: for each request, each answer has one meaning, and a text for a person, which is one printable
// line. An answer without the form of S3's successes isn't a success.
func TestAnswers(t *testing.T) {
	puts := []string{"put", "put if absent", "put if match"}
	conditional := append([]string{"delete if match"}, puts[1:]...)
	all := append([]string{"list", "get", "delete", "delete if match"}, puts...)
	repeat := errors.New("can be repeated")
	type answer struct {
		name    string
		answer  http.HandlerFunc
		of      []string
		want    error // nil for a success
		mention string
	}
	answers := []answer{
		{"access", say(403, "AccessDenied"), []string{"list"}, store.ErrPermission, "s3:ListBucket"},
		{"access", say(403, "AccessDenied"), []string{"get"}, store.ErrPermission, "s3:GetObject"},
		{"access", say(403, "AccessDenied"), []string{"put", "put if match"}, store.ErrPermission, "s3:PutObject"},
		{"access", say(403, "AccessDenied"), []string{"delete", "delete if match"}, store.ErrPermission, "s3:DeleteObject"},
		{"key", say(403, "InvalidAccessKeyId"), all, store.ErrCredentials, "credentials are wrong"},
		{"signature", say(403, "SignatureDoesNotMatch"), []string{"list", "get", "delete", "put"}, store.ErrCredentials, "the secret key is wrong, a proxy changes the request, or a clock is wrong: this machine's is 0s "},
		{"signature without the condition", say(403, "SignatureDoesNotMatch"), conditional, store.ErrConditionUnsupported, "SignatureDoesNotMatch"},
		{"condition denied", say(403, "AccessDenied"), []string{"put if absent"}, store.ErrConditionUnsupported, "403 AccessDenied"},
		{"versitygw's unknown key", say(404, "XAdminUserNotFound"), all, store.ErrCredentials, "credentials are wrong"},
		{"expired", say(400, "ExpiredToken"), all, store.ErrCredentials, "expired"},
		{"bucket", say(404, "NoSuchBucket"), all, store.ErrNotFound, `bucket "bucket"`},
		{"region", say(301, "PermanentRedirect", "X-Amz-Bucket-Region", "eu-west-1"), []string{"list", "put", "get"}, store.ErrConfig, "region=eu-west-1"},
		{"malformed", say(400, "AuthorizationHeaderMalformed", "X-Amz-Bucket-Region", "eu-west-1"), all, store.ErrConfig, "region=eu-west-1"},
		{"clock", skewed, all, store.ErrConfig, "ahead of the server's"},
		{"no such key", say(404, "NoSuchKey"), []string{"get"}, store.ErrNotFound, ""},
		{"no such key", say(404, "NoSuchKey"), []string{"put if match"}, store.ErrPrecondition, ""},
		{"no such key", say(404, "NoSuchKey"), []string{"delete", "delete if match"}, nil, ""},
		{"precondition", say(412, "PreconditionFailed"), conditional, store.ErrPrecondition, "412"},
		{"precondition, in few words", say(412, ""), conditional, store.ErrPrecondition, "412"},
		{"precondition, unasked", say(412, "PreconditionFailed"), []string{"get", "delete", "put"}, repeat, "412"},
		{"not implemented", say(501, "NotImplemented"), conditional, store.ErrConditionUnsupported, ""},
		{"not implemented, in few words", say(501, ""), conditional, store.ErrConditionUnsupported, ""},
		{"invalid argument", say(400, "InvalidArgument"), conditional, store.ErrConditionUnsupported, ""},
		{"conflict", say(409, "ConditionalRequestConflict"), conditional, store.ErrConflict, "409"},
		{"conflict", say(409, "OperationAborted"), all, store.ErrConflict, "409"},
		{"slow down", say(503, "SlowDown"), all, repeat, "503 SlowDown"},
		{"throttled", say(429, "TooManyRequests"), all, repeat, "429"},
		{"failure", say(500, "InternalError"), all, repeat, "500"},
		{"gateway", say(502, ""), all, repeat, "502"},
		{"a gateway's page", page(503), all, repeat, "503"},
		{"timeout", say(400, "RequestTimeout"), all, repeat, "RequestTimeout"},
		{"a page", page(200), []string{"list", "put", "put if absent", "delete"}, store.ErrConfig, "isn't an object store"},
		{"a page", page(404), []string{"list", "put", "delete"}, store.ErrConfig, "isn't an object store"},
		{"nothing", text(404, ""), []string{"list", "put", "delete"}, store.ErrConfig, "isn't an object store"},
		{"nothing", text(404, ""), []string{"get"}, repeat, "404"},
		{"a text", text(404, "404 page not found"), []string{"list", "put", "delete"}, repeat, "404"},
		{"plain to TLS", text(400, "Client sent an HTTP request to an HTTPS server."), all, store.ErrConfig, "TLS"},
		{"nothing", text(200, ""), []string{"list"}, store.ErrConfig, "isn't an object store"},
		{"nothing", text(200, ""), []string{"put", "put if absent"}, repeat, "no ETag"},
		{"login", redirect, []string{"list", "put", "delete"}, store.ErrConfig, ""},
		{"nothing", text(200, ""), []string{"delete"}, store.ErrConfig, "isn't an object store"},
		{"a page that asks for patience", page(408), all, repeat, "408"},
		{"a page that asks for patience", page(429), all, repeat, "429"},
		{"a region in the body alone, as MinIO's", xmlError(400, "<Code>AuthorizationHeaderMalformed</Code><Message>m</Message><Region>eu-west-1</Region>"), all, store.ErrConfig, "region=eu-west-1"},
		{"a region in the message alone, as versitygw's", xmlError(400, "<Code>AuthorizationHeaderMalformed</Code><Message>The authorization header is malformed; the region 'us-east-1' is wrong; expecting 'eu-west-1'</Message>"), all, store.ErrConfig, "region=eu-west-1"},
		{"a region in the message alone, in other quotes", xmlError(400, "<Code>AuthorizationHeaderMalformed</Code><Message>the region &quot;us-east-1&quot; is wrong; expecting &quot;eu-west-1&quot;</Message>"), []string{"list"}, store.ErrConfig, "region=eu-west-1"},
		{"a policy", xmlError(403, "<Code>AccessDenied</Code><Message>"+explicitDeny+"</Message>"), []string{"list", "get", "put", "delete"}, store.ErrPermission, "with an explicit deny in a resource-based policy)"},
		{"a policy", xmlError(403, "<Code>AccessDenied</Code><Message>"+explicitDeny+"</Message>"), []string{"put"}, store.ErrPermission, `s3:PutObject on bucket "bucket", and sse= or acl= in the URL if its policy demands them (host:9000 answers 403 AccessDenied: User: arn:aws:iam::`},
		{"a key of KMS", xmlError(400, "<Code>KMS.NotFoundException</Code><Message>Invalid keyId</Message>"), puts, store.ErrConfig, "sse-key="},
		{"an endpoint", xmlError(301, "<Code>PermanentRedirect</Code><Message>m</Message><Endpoint>s3.eu-west-1.example.com</Endpoint>"), []string{"list", "put"}, store.ErrConfig, "at the endpoint s3.eu-west-1.example.com ("},
		{"no ACLs", xmlError(400, "<Code>AccessControlListNotSupported</Code><Message>The bucket does not allow ACLs</Message>"), puts, store.ErrConfig, "leave acl= out of the URL"},
		{"no KMS, as MinIO's", xmlError(501, "<Code>NotImplemented</Code><Message>Server side encryption specified but KMS is not configured</Message>"), []string{"put"}, store.ErrConfig, "KMS is not configured"},
		{"a TLS alert", raw("\x15\x03\x01\x00\x02\x02\x46"), []string{"list", "get", "delete"}, store.ErrConfig, "wants TLS"},
		{"an empty page", empty("text/html; charset=UTF-8", 200, "e"), puts, nil, ""},
		{"an empty page", empty("text/html; charset=UTF-8", 204, ""), []string{"delete"}, nil, ""},
		{"a refusal that is called a page", as("text/html", 412, "<Error><Code>PreconditionFailed</Code></Error>"), conditional, store.ErrPrecondition, "412"},
		{"accepted, to be done later", empty("", 202, "e"), append([]string{"delete"}, puts...), repeat, "202"},
		{"no content", empty("", 204, "e"), []string{"get", "list"}, repeat, "204"},
		{"an object without an ETag", text(200, "{}"), []string{"get"}, store.ErrConfig, "ETag"},
		{"a body that is cut off", cut, []string{"get", "list"}, repeat, ""},
		{"an object without a length", raw("HTTP/1.0 200 OK\r\nETag: \"e\"\r\nLast-Modified: Thu, 01 Jan 2026 00:00:07 GMT\r\n\r\n"), []string{"get"}, repeat, "length"},
	}
	quiet := func(w http.ResponseWriter, r *http.Request) { // an answer without a date
		w.Header()["Date"] = nil
		say(403, "RequestTimeTooSkewed")(w, r)
	}
	answers = append(answers,
		answer{"the clock, and no date", quiet, all, store.ErrConfig, "far from the server's"},
		answer{"unauthorized", say(401, "Odd"), all, store.ErrPermission, "401 Odd"},
		answer{"a proxy's password", say(407, ""), []string{"list", "get", "delete"}, store.ErrConfig, "the proxy wants a user"},
		answer{"full", say(507, "Odd"), all, store.ErrFull, "507"},
		answer{"not implemented, unasked", say(501, "NotImplemented"), []string{"list", "get", "delete", "put"}, store.ErrConfig, "501"},
		answer{"invalid argument, unasked", say(400, "InvalidArgument"), []string{"list", "get", "delete", "put"}, repeat, "InvalidArgument"},
		answer{"a reason", xmlError(400, "<Code>Odd</Code><Message>for a reason</Message>"), []string{"list", "get", "delete", "put"}, repeat, "for a reason"},
		answer{"a gateway without its server", text(502, ""), all, store.ErrUnreachable, "502"},
		answer{"a gateway that waits for its server", page(504), all, store.ErrUnreachable, "504"},
	)
	for _, kind := range []string{"application/xml", "text/html"} {
		for _, header := range [][]string{nil, {"Etag", `"e"`}} {
			answers = append(answers,
				answer{"an error in a success", success(kind, "InternalError", header...), all, repeat, "answers 200 InternalError: the words"},
				answer{"an error in a success", success(kind, "NoSuchKey", header...), all, repeat, "answers 200 NoSuchKey"},
				answer{"an error in a success", success(kind, "PreconditionFailed", header...), all, repeat, "answers 200 PreconditionFailed"},
				answer{"an unknown key in a success", success(kind, "InvalidAccessKeyId", header...), all, store.ErrCredentials, "answers 200 InvalidAccessKeyId"},
			)
		}
	}
	for _, code := range []string{"QuotaExceeded", "QuotaExceededException", "XMinioStorageFull", "XMinioBucketQuotaExceeded", "XMinioAdminBucketQuotaExceeded", "InsufficientStorage"} {
		answers = append(answers, answer{"full", say(400, code), []string{"put", "put if absent"}, store.ErrFull, code})
	}
	for _, status := range []int{301, 302, 307, 308} {
		answers = append(answers, answer{"elsewhere", say(status, ""), []string{"list", "get"}, store.ErrConfig, "another region"})
	}
	for _, code := range []string{"NoSuchBucket", "NoSuchKey", "ExpiredToken", "InvalidRequest"} {
		answers = append(answers, answer{"a failing server", say(500, code), all, repeat, "500"}, answer{"an overloaded server", say(503, code), all, repeat, "503"})
	}
	for _, status := range []int{304, 400, 405, 411, 422, 428} {
		answers = append(answers, answer{"a condition", say(status, "Refused"), conditional, store.ErrConditionUnsupported, strconv.Itoa(status)},
			answer{"any request", say(status, "Refused"), []string{"put", "get", "delete"}, repeat, strconv.Itoa(status)})
	}
	const words = "a&#10;b&#x9b;31m&#13;c"
	for _, code := range []string{"OperationAborted", words, "AccessDenied" + words, strings.Repeat("x", 10000)} {
		said := "<Code>" + code + "</Code><Message>" + words + strings.Repeat("é", 300) + "</Message>"
		answers = append(answers, answer{"hostile words", xmlError(500, said), all, repeat, "500"})
	}
	for _, as := range []string{"", "text/html", "application/xml"} {
		for _, status := range []int{200, 201, 202} {
			answers = append(answers, answer{"no ETag, " + as, empty(as, status, ""), puts, repeat, ""})
		}
	}
	var server turns
	both(t, server.answer, func(t *testing.T, s store.Store) {
		for _, c := range answers {
			server.set(c.answer)
			for _, of := range c.of {
				send := requests[of]
				if of == "delete if match" {
					send = deleting
				}
				err := send(t.Context(), s)
				if of == "delete if match" && s.Properties().Name == "minio" {
					assert.Is(t, err, store.ErrConditionUnsent)
					continue
				}
				assert.That(t, (err == nil) == (c.want == nil), "%s: %s: %v", c.name, of, err)
				if err == nil {
					continue
				}
				if c.want == repeat || c.want == store.ErrConflict {
					assert.That(t, !store.Permanent(err), "%s: %s: %v is permanent", c.name, of, err)
				}
				if c.want != repeat {
					assert.Is(t, err, c.want, "%s: %s", c.name, of)
				}
				for _, other := range []error{store.ErrNotFound, store.ErrPrecondition, store.ErrConditionUnsupported, store.ErrPermission, store.ErrConfig} {
					assert.That(t, errors.Is(c.want, other) || !errors.Is(err, other), "%s: %s: %v is %v too", c.name, of, err, other)
				}
				assert.Says(t, err, err, c.mention, "%s: %s", c.name, of)
				assert.That(t, utf8.RuneCountInString(err.Error()) <= 500, "%s: %s: too long: %v", c.name, of, err)
				unprintable := func(r rune) bool { return !unicode.IsPrint(r) || r == unicode.ReplacementChar }
				assert.That(t, !strings.ContainsFunc(err.Error(), unprintable), "%s: %s: %q", c.name, of, err)
			}
		}
	})
}

// success returns a handler that answers 200, with an error of S3's in the body.
func success(kind, code string, header ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		for i := 0; i+1 < len(header); i += 2 {
			w.Header().Set(header[i], header[i+1])
		}
		w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:07 GMT")
		as(kind, 200, "  <?xml version=\"1.0\"?><Error><Code>"+code+"</Code><Message>the words for it</Message></Error>")(w, r)
	}
}

// TestErrorThatIsAnObject: the body of an object isn't a refusal, even if it looks like one.
func TestErrorThatIsAnObject(t *testing.T) {
	both(t, success("application/json", "InternalError", "Etag", `"e"`), func(t *testing.T, s store.Store) {
		body, _, err := s.Get(t.Context(), "index/k", 1000)
		assert.That(t, err == nil && strings.Contains(string(body), "<Error>"), "%s, %v", body, err)
	})
}

// TestOddDeletions: a listing decides whether an odd answer to a deletion is a success. Supabase answers 200. Some
// servers answer 404 without a word if there is no object. A proxy that drops a deletion also answers 200.
func TestOddDeletions(t *testing.T) {
	var deletes, lists turns
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodDelete {
			deletes.answer(w, r)
			return
		}
		lists.answer(w, r)
	}, func(t *testing.T, s store.Store) {
		list := func(key string) http.HandlerFunc {
			return as("application/xml", 200, `<ListBucketResult><Name>bucket</Name><Prefix>a/prefix/index/k</Prefix><IsTruncated>false</IsTruncated><Contents><Key>a/prefix/`+key+
				`</Key><LastModified>2026-01-01T00:00:00.000Z</LastModified><ETag>"e"</ETag><Size>2</Size></Contents></ListBucketResult>`)
		}
		gone, there := list("index/k2"), list("index/k")
		for _, c := range []struct {
			name         string
			delete, list http.HandlerFunc
			want         error
		}{
			{"200", text(200, ""), gone, nil},
			{"200 with a word", as("application/json", 200, `{"message":"deleted"}`), gone, nil},
			{"200, and it is still there", text(200, ""), there, store.ErrConfig},
			{"200, and listings are refused", text(200, ""), say(403, "AccessDenied"), store.ErrConfig},
			{"404 without a word", text(404, ""), gone, nil},
			{"404 without a word, and it is still there", text(404, ""), there, store.ErrConfig},
			{"404 with a page", page(404), gone, nil},
			{"404 with a word", text(404, "no such thing"), gone, nil},
			{"no bucket", say(404, "NoSuchBucket"), gone, store.ErrNotFound},
			{"an unknown key", say(404, "XAdminUserNotFound"), gone, store.ErrCredentials},
			{"a denial in a success", success("application/xml", "InvalidAccessKeyId"), gone, store.ErrCredentials},
			{"a page", page(200), there, store.ErrConfig},
		} {
			deletes.set(c.delete)
			lists.set(c.list)
			assert.Is(t, s.Delete(t.Context(), "index/k"), c.want, c.name)
			if s.Properties().Name == "s3" {
				assert.Is(t, deleting(t.Context(), s), c.want, "%s, with a condition", c.name)
			}
		}
		deletes.set(success("application/xml", "InternalError"))
		lists.set(gone)
		assert.That(t, s.Delete(t.Context(), "index/k") != nil, "an error in a success is a success")
	})
}

// packed returns a handler that compresses the answers of another, although no request asks for it. nginx weakens the
// ETag then.
func packed(h http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		plain := httptest.NewRecorder()
		h(plain, r)
		maps.Copy(w.Header(), plain.Header())
		w.Header().Set("Content-Encoding", "gzip")
		if tag := plain.Header().Get("Etag"); tag != "" {
			w.Header().Set("Etag", "W/"+tag)
		}
		w.WriteHeader(plain.Code)
		to := gzip.NewWriter(w)
		_, _ = to.Write(plain.Body.Bytes())
		_ = to.Close()
	}
}

// TestPacked: compressed answers are unpacked, those of objects and refusals too.
func TestPacked(t *testing.T) {
	var server turns
	both(t, func(w http.ResponseWriter, r *http.Request) { packed(server.answer)(w, r) }, func(t *testing.T, s store.Store) {
		server.set(as("application/xml", 200, listing))
		page, err := s.List(t.Context(), "index/", "")
		assert.That(t, err == nil && len(page.Objects) > 0, "%+v, %v", page, err)
		server.set(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Etag", `"e"`)
			w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:07 GMT")
			as("application/json", 200, `{"a":1}`)(w, r)
		})
		body, o, err := s.Get(t.Context(), "index/k", 100)
		assert.That(t, err == nil && string(body) == `{"a":1}` && o.ETag == "e" && o.Size == 7, "%q, %+v, %v", body, o, err)
		_, _, err = s.Get(t.Context(), "index/k", 3)
		assert.Is(t, err, store.ErrTooLarge)
		server.set(say(403, "AccessDenied"))
		assert.Says(t, assert.Err(s.List(t.Context(), "index/", "")), store.ErrPermission, "AccessDenied")
	})
}

// TestPackedOtherwise: no request asks for a compression that isn't unpacked. If an answer is compressed by another way than
// gzip, the error names that: a listing's is a wrong configuration, and a lock's isn't the damage of the lock. A plain
// object that was stored with such a Content-Encoding is read.
func TestPackedOtherwise(t *testing.T) {
	var server turns
	var encoding atomic.Value
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if asks := r.Header.Get("Accept-Encoding"); asks != "" && asks != "identity" && asks != "gzip" { // a program's own transport asks for gzip
			t.Errorf("%s asks for %q", r.Method, asks)
		}
		w.Header().Set("Last-Modified", "Thu, 01 Jan 2026 00:00:07 GMT")
		w.Header().Set("Content-Encoding", encoding.Load().(string))
		w.Header().Set("Etag", `"e"`)
		server.answer(w, r)
	}, func(t *testing.T, s store.Store) {
		for _, name := range []string{"br", "zstd", "deflate", "Br", "gzip, br"} {
			encoding.Store(name)
			server.set(as("application/xml", 200, "\x1b\x03packed"))
			why := "compressed by " + strings.TrimPrefix(strings.ToLower(name), "gzip, ")
			assert.Says(t, assert.Err(s.List(t.Context(), "index/", "")), store.ErrConfig, why)
			server.set(as("application/json", 200, "\x1b\x03packed"))
			_, _, err := s.Get(t.Context(), "index/k", 100)
			assert.That(t, err != nil && !store.Permanent(err) && strings.Contains(err.Error(), why), "%v", err)
			server.set(as("application/json", 200, `{"a":1}`))
			body, _, err := s.Get(t.Context(), "index/k", 100)
			assert.That(t, err == nil && string(body) == `{"a":1}`, "%q, %v", body, err)
		}
	})
}

// skewed refuses a request for the time in its signature.
func skewed(w http.ResponseWriter, r *http.Request) {
	say(403, "RequestTimeTooSkewed", "Date", time.Now().Add(-time.Hour).UTC().Format(http.TimeFormat))(w, r)
}

// raw returns a handler that sends these bytes, and closes the connection.
func raw(answer string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			panic(err)
		}
		defer conn.Close()
		_, _ = io.WriteString(conn, answer)
	}
}

// empty returns a handler that answers without a body.
func empty(kind string, status int, etag string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", kind)
		if etag != "" {
			w.Header().Set("Etag", `"`+etag+`"`)
		}
		w.WriteHeader(status)
	}
}

// cut ends the body of an answer before its length.
func cut(w http.ResponseWriter, r *http.Request) {
	body := "{}"
	if r.URL.RawQuery != "" {
		body = listing
		w.Header().Set("Content-Type", "application/xml")
	}
	w.Header().Set("Content-Length", fmt.Sprint(len(body)+10))
	w.Header().Set("Etag", `"e"`)
	w.Header().Set("Last-Modified", time.Now().UTC().Format(http.TimeFormat))
	fmt.Fprint(w, body)
	panic(http.ErrAbortHandler)
}

// TestHanging: the end of a context closes the connection of its request.
func TestHanging(t *testing.T) {
	came, gone := make(chan struct{}, 100), make(chan struct{}, 100)
	both(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		came <- struct{}{}
		<-r.Context().Done() // when the connection is closed
		gone <- struct{}{}
	}, func(t *testing.T, s store.Store) {
		for of, send := range requests {
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-came
				cancel()
			}()
			assert.Is(t, send(ctx, s), context.Canceled, "%s", of)
			select {
			case <-gone:
			case <-time.After(10 * time.Minute):
				t.Errorf("%s: the request is still under way", of)
			}
		}
	})
}

// TestBegunAndHanging: if the context ends after an answer has begun, the server isn't unreachable.
func TestBegunAndHanging(t *testing.T) {
	both(t, raw("HTTP/1.1 200 OK\r\nEtag"), func(t *testing.T, s store.Store) {
		for _, of := range []string{"get", "list"} {
			ctx, cancel := context.WithCancel(t.Context())
			begun := httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotFirstResponseByte: cancel})
			err := requests[of](begun, s)
			assert.That(t, errors.Is(err, context.Canceled) && !errors.Is(err, store.ErrUnreachable), "%s: %v", of, err)
		}
	})
}

// TestConditions: the server and the URL decide how conditions are declared. With conditions=none, a
// conditional put isn't sent.
func TestConditions(t *testing.T) {
	for raw, want := range map[string]store.Condition{
		"s3://bucket":                                    store.Kept,
		"s3://bucket?conditions=auto":                    store.Claimed,
		"s3://bucket?endpoint=https://h":                 store.Claimed,
		"s3://bucket?endpoint=https://h&conditions=kept": store.Kept,
		"minio://h/bucket":                               store.Claimed,
		"minio://h/bucket?conditions=kept":               store.Kept,
		"minio://h/bucket?conditions=none":               store.Unsupported,
		"s3://bucket?endpoint=https://h&conditions=none": store.Unsupported,
	} {
		settled(t, keys...)
		s, err := opened(t.Context(), t, raw)
		assert.OK(t, err)
		p := s.Properties()
		assert.That(t, p.IfAbsent == want && p.IfMatch == want && p.StoreClock, "%s: %+v", raw, p)
		for _, of := range []string{"put if absent", "put if match"} {
			if want == store.Unsupported {
				assert.Is(t, requests[of](t.Context(), s), store.ErrConditionUnsent, "%s: %s", raw, of)
			}
		}
	}
}

// TestSkewedAndLost: if a request is refused for its time, and then sent again without an answer, it might
// have been applied.
func TestSkewedAndLost(t *testing.T) {
	var n atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1)%2 == 1 {
			skewed(w, r)
			return
		}
		panic(http.ErrAbortHandler)
	}, func(t *testing.T, s store.Store) {
		// Only writes are tested, because the transport repeats other requests on another connection.
		for _, of := range []string{"put", "put if absent", "put if match", "delete"} {
			n.Store(0)
			err := requests[of](t.Context(), s)
			assert.That(t, err != nil && !store.Permanent(err) && n.Load() == 2, "%s: %v, %d requests", of, err, n.Load())
		}
	})
}

// TestPutBesideDelete: a put that isn't permitted is sent once more, because MinIO refuses puts so while
// another object is being deleted.
func TestPutBesideDelete(t *testing.T) {
	var n, refusals atomic.Int32
	both(t, func(w http.ResponseWriter, r *http.Request) {
		if n.Add(1) <= refusals.Load() {
			say(403, "AccessDenied")(w, r)
			return
		}
		w.Header().Set("Etag", `"e"`)
	}, func(t *testing.T, s store.Store) {
		for of, send := range requests {
			if of == "delete all" {
				continue // it isn't sent a second time
			}
			puts := strings.HasPrefix(of, "put")
			for _, refused := range []int32{1, 2} {
				n.Store(0)
				refusals.Store(refused)
				err := send(t.Context(), s)
				want, tries := store.ErrPermission, int32(1)
				if of == "put if absent" {
					want = store.ErrConditionUnsupported
				}
				if puts {
					tries = 2
				}
				if puts && refused == 1 {
					want = nil
				}
				assert.Is(t, err, want, "%s, refused %d times", of, refused)
				assert.Equal(t, n.Load(), tries, "%s, refused %d times: requests", of, refused)
			}
		}
	})
}

// unsigned is a client whose source of credentials can fail.
type unsigned struct {
	s3api.Client
	err error
}

func (u *unsigned) Signable(context.Context) (s3api.Keys, error) { return s3api.Keys{}, u.err }

func (u *unsigned) List(context.Context, string, string) error { return nil }

// TestCredentialsFail: if there never were credentials, that is a wrong configuration. If an earlier
// request had some, the next one might have some too.
func TestCredentialsFail(t *testing.T) {
	c := &unsigned{err: fmt.Errorf("no credentials: %w", store.ErrConfig)}
	s := s3api.New(c, s3api.Place{Bucket: "b", Host: "h"})
	err := requests["list"](t.Context(), s)
	assert.That(t, errors.Is(err, store.ErrConfig) && errors.Is(err, c.err), "never any: %v", err)
	failure := c.err
	c.err = nil
	_ = requests["list"](t.Context(), s)
	c.err = failure
	err = requests["list"](t.Context(), s)
	assert.Says(t, err, err, "no credentials")
	assert.That(t, !errors.Is(err, store.ErrConfig) && !store.Permanent(err), "some before: %v", err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	assert.Is(t, assert.Err(s.List(ctx, "x", "")), context.Canceled, "cancelled")
}

// TestUndeletable: if a listed key is invalid, the error has a command that deletes its object.
func TestUndeletable(t *testing.T) {
	both(t, func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s is sent", r.Method) }, func(t *testing.T, s store.Store) {
		const command = `for example: aws s3api delete-object --endpoint-url 'http://host:9000' --bucket 'bucket' --key 'a/prefix/index//it'\''s'`
		assert.Says(t, s.Delete(t.Context(), "index//it's"), store.ErrInvalidKey, command)
	})
}
