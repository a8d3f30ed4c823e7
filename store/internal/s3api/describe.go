package s3api

import (
	"context"

	"github.com/repolock/repolock/store"
)

// Describe asks for the bucket's settings.
func (s *Store) Describe(ctx context.Context) (store.Description, error) {
	var d store.Description
	for _, ask := range []struct {
		answer   *store.Answer
		question func(context.Context) (bool, error)
	}{
		{&d.Versioning, s.client.Versioning},
		{&d.ObjectLock, s.client.ObjectLock},
	} {
		wctx, r, err := s.begin(ctx, "describe", "bucket", "s3:GetBucketVersioning")
		if err != nil {
			return d, err
		}
		yes, err := ask.question(wctx)
		d.Server = r.answer.Header("Server")
		switch {
		case ctx.Err() != nil:
			return d, s.failed(ctx, r, err)
		case err == nil && yes:
			*ask.answer = store.Yes
		case err == nil, refused(r.answer).Code == "ObjectLockConfigurationNotFoundError":
			*ask.answer = store.No
		}
	}
	return d, nil
}
