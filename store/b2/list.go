package b2

import (
	"context"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// List's cursor is the key that the next page begins with.
func (s *Store) List(ctx context.Context, prefix, cursor string) (store.Page, error) {
	page, err := s.list(ctx, prefix, cursor)
	if err != nil {
		return store.Page{}, failed("list", prefix, err)
	}
	return page, nil
}

func (s *Store) list(ctx context.Context, prefix, cursor string) (store.Page, error) {
	if err := ctx.Err(); err != nil {
		return store.Page{}, err
	}
	prefix = s.prefix + prefix
	if cursor != "" {
		cursor = s.prefix + cursor
	}
	return call(ctx, s, prefix, "listFiles", func(ctx context.Context, in *session) (store.Page, error) {
		ctx, answer := web.Watch(ctx)
		files, next, err := in.bucket.ListFileNames(ctx, pageSize, cursor, prefix, "")
		if err != nil {
			return store.Page{}, err
		}
		page := store.Page{Now: answer.Date()}
		for _, f := range files {
			page.Objects = append(page.Objects, versionOf(f).object(strings.TrimPrefix(f.Name, s.prefix)))
		}
		if strings.HasPrefix(next, prefix) {
			page.Next = strings.TrimPrefix(next, s.prefix)
		}
		return page, nil
	})
}
