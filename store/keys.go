package store

import "context"

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
