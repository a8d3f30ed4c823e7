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

	"github.com/repolock/repolock/store/internal/web"
)

// unfit is why what answers can't be an object store, or not one that serves.
type unfit string

func (why unfit) Error() string { return "what answers there isn't an object store: " + string(why) }

// maxAnswer is more than a list of 1000 objects can have.
const maxAnswer = 16 << 20

// bounded is the body of an answer that isn't an object's: the client libraries read it into
// memory, to its end.
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

// Transport has a transport note its answers for [Store], and refuse successes
// that aren't S3's.
func Transport(next http.RoundTripper) http.RoundTripper { return strict{web.Watched(next)} }

type strict struct{ next http.RoundTripper }

func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
	}
	if !isObject(r) {
		res.Body = &bounded{res.Body, maxAnswer}
	}
	if err := check(r, res); err != nil {
		res.Body.Close()
		return nil, err
	}
	return res, nil
}

// check looks at an answer. A failure of the server's is never one of S3's
// configuration, whoever words it: load balancers do.
func check(r *http.Request, res *http.Response) error {
	switch {
	case res.StatusCode >= 500, res.StatusCode == http.StatusRequestTimeout, res.StatusCode == http.StatusTooManyRequests:
		return nil
	case isPage(res) && !isObject(r):
		return unfit("it answers with a web page")
	case res.StatusCode >= 300:
		return nil
	case res.StatusCode != http.StatusOK && (r.Method != http.MethodDelete || res.StatusCode != http.StatusNoContent):
		return fmt.Errorf("it answers %d, which isn't a success of S3's", res.StatusCode)
	case r.Method == http.MethodDelete:
		// S3's answer is 204. Somebody in between who swallows a deletion answers
		// 200: a lock that counts as deleted would still be there.
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

// isPage reports whether an answer is a web page. What is empty, or a refusal in S3's words,
// is none, whatever it is called: Swift and moto call all that they answer so.
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

// isObject reports whether the answer is an object's own body. The SDK names the
// operation in the query.
func isObject(r *http.Request) bool {
	return r.Method == http.MethodGet && (r.URL.RawQuery == "" || r.URL.RawQuery == "x-id=GetObject")
}

// checkObject looks whether an object is one, and will be seen to be cut off: an
// empty body means that the lock was released.
func checkObject(res *http.Response) error {
	switch {
	case res.Header.Get("Etag") == "":
		return unfit("it answers with an object without an ETag")
	case res.ContentLength < 0 && len(res.TransferEncoding) == 0:
		return errors.New("the object comes without a length, and may be cut off")
	}
	return nil
}

// checkList reads a listing to its end, and looks whether it is one, whole, and
// the one that was asked for. The client libraries take an empty body or any
// other XML for an empty listing.
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
