package b2

import (
	"context"
	"errors"

	"github.com/repolock/repolock/store"
)

// Describe reads the bucket's settings, in one request. ObjectLock is Unknown if the application
// key can't read it.
func (s *Store) Describe(ctx context.Context) (store.Description, error) {
	d := store.Description{Server: "Backblaze B2", Versioning: store.Yes}
	locks, err := call(ctx, s, s.prefix, "listBuckets", s.objectLock)
	if errors.Is(err, store.ErrPermission) {
		return d, nil
	}
	if err != nil {
		return store.Description{}, failed("describe", s.bucket, err)
	}
	d.ObjectLock = locks
	return d, nil
}

func (s *Store) objectLock(ctx context.Context, in *session) (store.Answer, error) {
	var answer struct {
		Buckets []struct {
			ID   string `json:"bucketId"`
			Lock struct {
				Told  bool `json:"isClientAuthorizedToRead"`
				Value struct {
					Enabled bool `json:"isFileLockEnabled"`
				} `json:"value"`
			} `json:"fileLockConfiguration"`
		} `json:"buckets"`
	}
	err := s.post(ctx, in, "b2_list_buckets", map[string]any{"accountId": in.AccountID, "bucketId": in.bucket.ID}, &answer)
	for _, b := range answer.Buckets {
		switch {
		case b.ID != in.bucket.ID || !b.Lock.Told:
		case b.Lock.Value.Enabled:
			return store.Yes, err
		default:
			return store.No, err
		}
	}
	return store.Unknown, err
}
