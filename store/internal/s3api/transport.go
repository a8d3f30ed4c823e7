package s3api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/repolock/repolock/store/internal/httptransport"
)

// unfit is the reason that a server can't be an object store.
type unfit string

func (why unfit) Error() string { return "what answers there isn't an object store: " + string(why) }

// maxAnswer is more than a list of 1000 objects can have.
const maxAnswer = 16 << 20

// bounded is the body of an answer without an object: the client libraries read all of it
// into memory.
type bounded struct {
	io.ReadCloser
	left int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(len(p), b.left+1)])
	if b.left -= n; b.left < 0 {
		return 0, unfit(fmt.Sprintf("it answers with more than %d MiB", maxAnswer>>20))
	}
	return n, err
}

// Transport returns a transport that notes its answers for [Store], and refuses successes
// that aren't S3's. Requests of others than Store pass.
func Transport(next http.RoundTripper) http.RoundTripper { return strict{httptransport.Watched(next)} }

// Transports reports whether a transport is one that Transport returned.
func Transports(t http.RoundTripper) bool {
	_, ok := t.(strict)
	return ok
}

type strict struct{ next http.RoundTripper }

func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	if err != nil || !httptransport.Watches(r) {
		return res, err
	}
	if !isObject(r) {
		res.Body = &bounded{res.Body, maxAnswer}
	}
	if err := check(r, res); err != nil {
		httptransport.AnswerOf(r.Context()).Fail(err)
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// check returns an error for an answer that isn't S3's. A failure of the server is none,
// whatever its form: load balancers send pages.
func check(r *http.Request, res *http.Response) error {
	switch {
	case httptransport.Passing(res.StatusCode):
		return nil
	case isPage(res) && !isObject(r):
		return unfit("it answers with a web page")
	case res.StatusCode >= 300:
		return nil
	case res.StatusCode != http.StatusOK && (r.Method != http.MethodDelete || res.StatusCode != http.StatusNoContent):
		return fmt.Errorf("it answers %d, which isn't a success of S3's", res.StatusCode)
	case r.Method == http.MethodDelete:
		// S3's answer is 204. A proxy that drops a deletion answers 200: the lock
		// would still exist.
		if res.StatusCode != http.StatusNoContent {
			return unfit("it answers a deletion with 200")
		}
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		return checkList(r.URL.Query(), res)
	case isObject(r):
		return checkObject(res)
	}
	return nil
}

// isPage reports whether an answer is a web page. An empty body or a refusal of S3's isn't,
// whatever its content type: Swift and moto send text/html with every answer.
func isPage(res *http.Response) bool {
	if !strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") || res.ContentLength == 0 {
		return false
	}
	if res.StatusCode < 300 {
		return true
	}
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(body))
	return err != nil || inWords(body).Code == ""
}

// isObject reports whether the answer is an object's body. The SDK puts the operation into
// the query.
func isObject(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.RawQuery == "" || r.URL.RawQuery == "x-id=GetObject")
}

// checkObject returns an error unless an answer is an object with a known end: an empty body
// means that the lock was released.
func checkObject(res *http.Response) error {
	switch {
	case res.Header.Get("Etag") == "":
		return unfit("it answers with an object without an ETag")
	case res.ContentLength < 0 && len(res.TransferEncoding) == 0:
		return errors.New("the object comes without a length, and may be cut off")
	}
	return nil
}

// checkList returns an error unless an answer is a whole listing, and the one that was
// requested. The client libraries take an empty body or any other XML for an empty listing.
func checkList(query url.Values, res *http.Response) error {
	body, err := io.ReadAll(res.Body)
	res.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the listing: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))

	var head struct {
		XMLName      xml.Name
		Name         string  `xml:"Name"`
		Prefix       *string `xml:"Prefix"`
		EncodingType string  `xml:"EncodingType"`
		IsTruncated  string  `xml:"IsTruncated"`
		Contents     []struct {
			Size         string `xml:"Size"`
			LastModified string `xml:"LastModified"`
		} `xml:"Contents"`
	}
	err = xml.Unmarshal(body, &head)
	switch {
	case head.XMLName.Local != "ListBucketResult":
		return unfit("its listing isn't one")
	case !bytes.HasSuffix(bytes.TrimSpace(body), []byte("</ListBucketResult>")):
		return errors.New("the listing is cut off")
	case err != nil:
		return fmt.Errorf("the listing can't be read: %w", err)
	}
	if head.Name == "" {
		return unfit("its listing names no bucket")
	}
	if _, err := strconv.ParseBool(head.IsTruncated); err != nil {
		return unfit("its listing doesn't say whether it goes on")
	}
	for _, o := range head.Contents {
		// The libraries take what is missing for 0, and an empty object is a
		// released lock.
		if _, err := strconv.ParseUint(o.Size, 10, 63); err != nil || o.LastModified == "" {
			return unfit("its listing has objects without a size or a time")
		}
	}
	if head.Prefix != nil {
		got, err := *head.Prefix, error(nil)
		if head.EncodingType == "url" {
			got, err = url.QueryUnescape(got)
		}
		if want := query.Get("prefix"); err != nil || got != want {
			return fmt.Errorf("the listing is of %q, not of %q: is there a cache in between?", *head.Prefix, want)
		}
	}
	return nil
}
