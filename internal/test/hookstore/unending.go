package hookstore

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/repolock/repolock/store"
)

// Unending is a store whose listings never end: each page has a cursor to another.
type Unending struct {
	store.Store
	// How is the kind of endlessness, one of Ways.
	How string
	// Most limits the pages: List fails after them, so that code which never stops asking fails its test.
	Most  int64
	pages atomic.Int64
}

// Ways in which a listing has no end.
var Ways = []string{"same token", "same page", "two tokens in turn", "two pages in turn", "empty pages", "empty pages and one token"}

// Pages is the number of pages that were requested.
func (s *Unending) Pages() int64 { return s.pages.Load() }

// List returns the first page again and again, or an empty one.
func (s *Unending) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	n := s.pages.Add(1)
	if n > s.Most {
		return store.Page{}, fmt.Errorf("%w: page %d of a listing was asked for", store.ErrConfig, n)
	}
	page, err := s.Store.List(ctx, prefix, "")
	if err != nil {
		return page, err
	}
	next := fmt.Sprint("token-", n)
	switch {
	case s.How == "same token", strings.HasSuffix(s.How, "one token"):
		next = "token"
	case s.How == "two tokens in turn":
		next = fmt.Sprint("token-", n%2)
	}
	if strings.HasPrefix(s.How, "empty") {
		page.Objects = nil
	}
	if half := len(page.Objects) / 2; s.How == "two pages in turn" && half > 0 {
		if n%2 == 1 {
			page.Objects = page.Objects[:half]
		} else {
			page.Objects = page.Objects[half:]
		}
	}
	page.Next = next
	return page, nil
}
