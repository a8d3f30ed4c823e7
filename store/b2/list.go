package b2

import (
	"context"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// List returns a page of up to 1000 objects, in one request. The cursor is the key that the
// next page begins with.
func (s *Store) List(ctx context.Context, prefix, cursor string) (_ store.Page, err error) {
	defer func() { err = failed("list", prefix, err) }()
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	namePrefix := s.prefix + prefix
	if cursor != "" {
		cursor = s.prefix + cursor
	}
	return call(ctx, s, namePrefix, "listFiles", func(ctx context.Context, in *session) (store.Page, error) {
		ctx, answer := httptransport.Watch(ctx, nil)
		files, next, err := in.bucket.ListFileNames(ctx, pageSize, cursor, namePrefix, "")
		if err != nil {
			return store.Page{}, err
		}
		page := store.Page{Now: answer.Date()}
		for _, f := range files {
			page.Objects = append(page.Objects, versionOf(f).object(strings.TrimPrefix(f.Name, s.prefix)))
		}
		if strings.HasPrefix(next, namePrefix) {
			page.Next = strings.TrimPrefix(next, s.prefix)
		}
		return page, nil
	})
}
