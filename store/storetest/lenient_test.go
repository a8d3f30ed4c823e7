package storetest

import (
	"context"
	"strings"
	"testing"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/memory"
)

// lenient is a store that does as little as the contract allows: its pages have few objects or none, and a batch
// leaves out its first key.
type lenient struct{ *memory.Store }

const emptyPage = "|none yet"

func (s lenient) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	from, empty := strings.CutSuffix(cursor, emptyPage)
	page, err := s.Store.List(ctx, prefix, from)
	n := min(len(page.Objects), 1+len(cursor)%7)
	switch {
	case err != nil || len(page.Objects) <= 1:
	case cursor != "" && !empty && len(page.Objects)%5 == 0:
		page.Objects, page.Next = nil, cursor+emptyPage
	case n < len(page.Objects):
		page.Objects, page.Next = page.Objects[:n], page.Objects[n-1].Key
	}
	return page, err
}

func (s lenient) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted, err := s.Store.DeleteAll(ctx, keys[1:])
	return append([]bool{false}, deleted...), err
}

// TestLenient: the suite accepts what the contract allows, even if no backend does so.
func TestLenient(t *testing.T) {
	Run(t, Config{New: func(*testing.T) store.Store { return lenient{memory.New(memory.Options{})} }, Light: true})
}
