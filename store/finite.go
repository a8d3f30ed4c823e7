package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
)

// Finite returns a store whose listings end, whatever the server answers. It checks that each key comes after the one
// before, also across pages, that each page has a new cursor, and that no more than 100 pages in a row are empty.
// Otherwise List returns [ErrListing].
//
// The cursors carry the last key, so Finite needs no state between two pages. A loop over the pages of an unknown store
// must read them through Finite.
func Finite(s Store) Store { return finite{s} }

type finite struct{ Store }

// maxEmpty is how many pages in a row can be empty. Some stores return such pages after many deletions.
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
			return bad("it has %.256q, which doesn't have the prefix", o.Key)
		case o.Key <= next.last:
			return bad("%.256q comes after %.256q, so the listing isn't in order, or has no end", o.Key, next.last)
		}
		next.last = o.Key
	}
	if len(page.Objects) == 0 {
		next.empty = at.empty + 1
	}
	switch {
	case page.Next == "":
		return page, nil
	case next.empty > maxEmpty:
		return bad("%d pages in a row are empty, and there are more", next.empty)
	}
	page.Next = next.String()
	return page, nil
}

// place is a position in a listing, after one of its pages.
type place struct {
	cursor string // the store's own cursor
	last   string // the last key so far
	empty  int    // number of empty pages in a row, up to this page
}

// placeFormat quotes the strings, because a key or a cursor can have any bytes.
const placeFormat = "%d %q %q"

func (p place) String() string { return fmt.Sprintf(placeFormat, p.empty, p.last, p.cursor) }

func readPlace(s string) (p place, err error) {
	if s == "" {
		return p, nil
	}
	if _, err := fmt.Sscanf(s, placeFormat, &p.empty, &p.last, &p.cursor); err != nil {
		return p, fmt.Errorf("%.80q isn't a cursor", s)
	}
	return p, nil
}

// DeleteIfMatch calls the store's method, or returns ErrConditionUnsent.
func (f finite) DeleteIfMatch(ctx context.Context, key, etag string) error {
	return DeleteIfMatch(ctx, f.Store, key, etag)
}

// DeleteAll calls the store's method, or returns ErrBatchUnsent.
func (f finite) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	return DeleteAll(ctx, f.Store, keys)
}

// Watch calls the store's method, or returns errors.ErrUnsupported.
func (f finite) Watch(ctx context.Context, prefix string) (<-chan struct{}, error) {
	return Watch(ctx, f.Store, prefix)
}

// HasOther calls the store's method, or returns errors.ErrUnsupported.
func (f finite) HasOther(ctx context.Context, prefix string) (bool, error) {
	v, ok := f.Store.(Surveyor)
	if !ok {
		return false, errors.ErrUnsupported
	}
	return v.HasOther(ctx, prefix)
}

// PageOf returns the page of a listing that shows the key, if any page does. It sends more than one request only if a
// page is empty and isn't the last. A loop that must end needs a store from [Finite].
func PageOf(ctx context.Context, s Store, key string) (Page, error) {
	for cursor := ""; ; {
		page, err := s.List(ctx, key, cursor)
		if err != nil || len(page.Objects) > 0 || page.Next == "" {
			return page, err
		}
		cursor = page.Next
	}
}

// Keys returns all keys with a prefix, in order. It reads the pages through [Finite]; a page
// is one request.
func Keys(ctx context.Context, s Store, prefix string) (keys []string, err error) {
	s = Finite(s)
	for cursor := ""; ; {
		page, err := s.List(ctx, prefix, cursor)
		if err != nil {
			return nil, err
		}
		for _, o := range page.Objects {
			keys = append(keys, o.Key)
		}
		if cursor = page.Next; cursor == "" {
			return keys, nil
		}
	}
}
