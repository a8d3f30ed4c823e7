package minio

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
)

// pages stops the library from asking for the next page of a listing by itself,
// which it does after a page that isn't full: what two answers say is not of one
// time, and a listing is one request.
type pages struct{ next http.RoundTripper }

// errPageEnd is the answer to the second request of a listing.
var errPageEnd = errors.New("the page is at its end")

type pageKey struct{}

// onePage is a context for one request.
func onePage(ctx context.Context) context.Context {
	return context.WithValue(ctx, pageKey{}, new(atomic.Bool))
}

func (p pages) RoundTrip(r *http.Request) (*http.Response, error) {
	if sent, ok := r.Context().Value(pageKey{}).(*atomic.Bool); ok && sent.Swap(true) {
		return nil, errPageEnd
	}
	return p.next.RoundTrip(r)
}
