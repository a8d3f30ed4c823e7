package doctor

import (
	"context"

	"github.com/repolock/repolock/store"
)

// conditionalDelete tries out a deletion of what was seen and nothing else. The
// lock doesn't need it.
func (x *exam) conditionalDelete(ctx context.Context) error {
	d, ok := x.writer().(store.ConditionalDeleter)
	if !ok {
		x.add(Check{Name: ConditionalDelete, Result: Unknown, Detail: "this backend doesn't offer it; repolock doesn't need it"})
		return nil
	}
	remove := func(key, etag string) error {
		_, err := once(ctx, x, timeout, "delete if-match", key, func(ctx context.Context) (struct{}, error) {
			return struct{}{}, d.DeleteIfMatch(ctx, key, etag)
		})
		return err
	}
	o, detail, err := x.afresh(ctx, "delete-if-match", func(key string) []step {
		var etag string
		return []step{
			{"a plain put", done, func() (err error) { etag, err = x.putTagged(ctx, key, "1"); return err }},
			{"a deletion with a wrong ETag", unmet, func() error { return remove(key, wrongETag) }},
			{"a deletion with the right ETag", done, func() error { return remove(key, etag) }},
		}
	})
	if err != nil {
		return err
	}
	c := Check{Name: ConditionalDelete, Result: o.verdict(store.Claimed), Detail: detail + "; repolock doesn't need it"}
	switch {
	case o == kept:
		c.Detail = "a wrong ETag was refused, and the right one taken; repolock doesn't need it"
	case o == forbidden:
		c.Result = Warn
	}
	x.add(c)
	return nil
}
