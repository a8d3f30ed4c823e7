package doctor

import (
	"context"
	"errors"

	"github.com/repolock/repolock/store"
)

// ifMatchAbsent tries out a put with If-Match on a key without an object. A server
// that carries it out lets a refresh put a broken lock back.
func (x *exam) ifMatchAbsent(ctx context.Context, declared store.Condition) error {
	o, detail, err := x.afresh(ctx, "if-match-absent", func(key string) []step { return x.absentSteps(ctx, key) })
	if err != nil {
		return err
	}
	if o == kept {
		detail = "a put with If-Match on a key that isn't there was refused"
	}
	c := conditional(IfMatchAbsent, o, declared, detail, nil)
	if o == ignored {
		c.Detail = "the server takes If-Match on a key that isn't there (MinIO before September 2025)"
		if declared == store.Kept {
			c.Detail += ", so that a refresh would put a broken lock back: leave conditions=kept out of the URL"
		} else {
			c.Detail += ": repolock looks before each put instead"
		}
	}
	if o != kept {
		x.ifMatchIs = o
	}
	x.add(c)
	return nil
}

// absentSteps are about a key that was never there, and about one that was deleted,
// as that of a broken lock.
func (x *exam) absentSteps(ctx context.Context, key string) []step {
	put := func(key, etag string) error {
		_, err := x.putOnce(ctx, key, "revived", store.PutOptions{IfMatch: etag})
		if errors.Is(err, store.ErrNotFound) {
			return store.ErrPrecondition // as good an answer
		}
		return err
	}
	steps := []step{{"a put where nothing ever was", unmet, func() error { return put(key+"-never", wrongETag) }}}
	if len(x.lacking([]string{Delete})) > 0 {
		return steps
	}
	deleted, etag := key+"-deleted", ""
	return append(steps,
		step{"a plain put", done, func() (err error) { etag, err = x.putTagged(ctx, deleted, "1"); return err }},
		step{"a deletion", done, func() error { return x.remove(ctx, deleted) }},
		step{"a put with the ETag of what was deleted", unmet, func() error { return put(deleted, etag) }},
	)
}
