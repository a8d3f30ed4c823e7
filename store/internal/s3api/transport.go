package s3api

import (
	"bytes"
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/repolock/repolock/store/internal/web"
)

// errNotS3 is the answer of something that isn't an object store.
var errNotS3 = errors.New("what answers there isn't an object store")

// maxList is more than a list of 1000 objects can have.
const maxList = 16 << 20

// Transport has a transport note its answers for [Store], and refuse successes
// that aren't S3's.
func Transport(next http.RoundTripper) http.RoundTripper { return strict{web.Watched(next)} }

// NoRedirect is for http.Client.CheckRedirect. A redirect says that the region or
// the endpoint is wrong, and the signature is for this host alone.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

type strict struct{ next http.RoundTripper }

func (s strict) RoundTrip(r *http.Request) (*http.Response, error) {
	res, err := s.next.RoundTrip(r)
	if err != nil {
		return nil, err
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
	case res.StatusCode >= 500:
		return nil
	case strings.HasPrefix(res.Header.Get("Content-Type"), "text/html") && !isObject(r):
		return fmt.Errorf("%w: it answers with a web page", errNotS3)
	case res.StatusCode >= 300:
		return nil
	case r.Method == http.MethodDelete:
		if n, _ := io.CopyN(io.Discard, res.Body, 1); n > 0 {
			return fmt.Errorf("%w: it answers a deletion with a text", errNotS3)
		}
	case r.Method == http.MethodGet && r.URL.Query().Get("list-type") == "2":
		return checkList(r.URL.Query(), res)
	}
	return nil
}

// isObject reports whether the answer is an object's own body.
func isObject(r *http.Request) bool { return r.Method == http.MethodGet && r.URL.RawQuery == "" }

// checkList reads a listing to its end, and looks whether it is one, whole, and
// the one that was asked for. The client libraries take an empty body or any
// other XML for an empty listing.
func checkList(query url.Values, res *http.Response) error {
	body, err := io.ReadAll(io.LimitReader(res.Body, maxList))
	res.Body.Close()
	if err != nil {
		return fmt.Errorf("reading the listing: %w", err)
	}
	res.Body = io.NopCloser(bytes.NewReader(body))

	d := xml.NewDecoder(bytes.NewReader(body))
	root := ""
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) || err != nil {
			break
		}
		if start, ok := token.(xml.StartElement); ok {
			root = start.Name.Local
			break
		}
	}
	if root != "ListBucketResult" {
		return fmt.Errorf("%w: its listing isn't one", errNotS3)
	}
	if !bytes.HasSuffix(bytes.TrimSpace(body), []byte("</ListBucketResult>")) {
		return errors.New("the listing is cut off")
	}
	var head struct {
		Name         string  `xml:"Name"`
		Prefix       *string `xml:"Prefix"`
		EncodingType string  `xml:"EncodingType"`
	}
	if err := xml.Unmarshal(body, &head); err != nil {
		return fmt.Errorf("the listing can't be read: %w", err)
	}
	if head.Name == "" {
		return fmt.Errorf("%w: its listing names no bucket", errNotS3)
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
