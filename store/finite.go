package store

import (
	"context"
	"fmt"
	"strings"
)

// Finite returns the store with listings that end, whatever the server says: each key of a
// listing comes after the one before, on its page and on the pages before; a page has another
// cursor than the one that it was asked for with; and few pages in a row are empty. So a listing
// has no more pages than a small multiple of its objects. One that has is [ErrListing].
//
// What a listing has shown so far is in its cursors, so that nothing is kept between two pages.
// Whoever reads more than one page of a store that they were given reads them through this.
func Finite(s Store) Store { return finite{s} }

type finite struct{ Store }

// maxEmpty is how many pages in a row may be empty. Some stores give such where much was deleted.
const maxEmpty = 100

func (f finite) List(ctx context.Context, prefix, cursor string) (Page, error) {
	bad := func(format string, args ...any) (Page, error) {
		return Page{}, &Error{Op: "list", Key: prefix, Err: fmt.Errorf("%w: %s", ErrListing, fmt.Sprintf(format, args...))}
	}
	at, err := readPlace(cursor)
	if err != nil {
		return bad("%v", err)
	}
	page, err := f.Store.List(ctx, prefix, at.cursor)
	if err != nil {
		return Page{}, err
	}
	next := place{cursor: page.Next, last: at.last}
	for _, o := range page.Objects {
		switch {
		case !strings.HasPrefix(o.Key, prefix):
			return bad("it has %.256q, which wasn't asked for", o.Key)
		case o.Key <= next.last:
			return bad("%.256q comes after %.256q, so that it has no order, or no end", o.Key, next.last)
		}
		next.last = o.Key
	}
	if len(page.Objects) == 0 {
		next.empty = at.empty + 1
	}
	switch {
	case page.Next == "":
		return page, nil
	case page.Next == at.cursor:
		return bad("a page says that the listing goes on where the page itself was")
	case next.empty > maxEmpty:
		return bad("%d pages in a row are empty, and it goes on", next.empty)
	}
	page.Next = next.String()
	return page, nil
}

// place is one in a listing.
type place struct {
	cursor string // the store's own
	last   string // the last key so far
	empty  int    // how many of the pages before it, in a row
}

func (p place) String() string {
	return fmt.Sprintf("%d %d %s%s", p.empty, len(p.last), p.last, p.cursor)
}

func readPlace(s string) (p place, err error) {
	if s == "" {
		return p, nil
	}
	var n int
	head, rest, _ := strings.Cut(s, " ")
	size, rest, ok := strings.Cut(rest, " ")
	if _, err := fmt.Sscanf(head+" "+size, "%d %d", &p.empty, &n); err != nil || !ok || n < 0 || n > len(rest) {
		return p, fmt.Errorf("%.80q is no cursor of it", s)
	}
	p.last, p.cursor = rest[:n], rest[n:]
	return p, nil
}

// DeleteIfMatch passes on.
func (f finite) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return DeleteIfMatch(ctx, f.Store, key, etag)
}
