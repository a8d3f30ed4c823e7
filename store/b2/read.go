package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
)

// Get downloads an object of at most limit bytes, in one request.
func (s *Store) Get(ctx context.Context, key string, limit int64) (_ []byte, o store.Object, err error) {
	defer func() { err = failed("get", key, err) }()
	name, err := s.name(ctx, key)
	if err != nil {
		return nil, o, err
	}
	var answer *note
	d, err := call(ctx, s, name, "readFiles", func(ctx context.Context, in *session) (*base.FileReader, error) {
		answer = noteOf(ctx)
		answer.Whole(limit)
		// Ask for the whole file, because B2 refuses a range of an empty one.
		return in.bucket.DownloadFileByName(ctx, name, 0, 0, false)
	})
	if errors.Is(err, errNoObject) {
		return nil, o, store.ErrNotFound
	}
	if err != nil {
		return nil, o, err
	}
	defer d.Close()
	body := answer.Body()
	if int64(len(body)) > limit {
		return nil, o, store.ErrTooLarge
	}
	if err := verify(body, d.SHA1); err != nil {
		return nil, o, err
	}
	o = store.Object{Key: key, ETag: d.ID, Size: int64(len(body))}
	if ms, err := strconv.ParseInt(answer.Header("X-Bz-Upload-Timestamp"), 10, 64); err == nil {
		o.ModTime = time.UnixMilli(ms)
	}
	return body, o, nil
}

// verify returns an error if a body doesn't have the checksum that the server has sent.
func verify(body []byte, want string) error {
	want = strings.TrimPrefix(want, "unverified:")
	expected, err := hex.DecodeString(want)
	if got := sha1.Sum(body); err == nil && len(expected) == len(got) && !bytes.Equal(expected, got[:]) {
		return errors.New("the body isn't the stored one: its checksum is wrong")
	}
	return nil
}

// List returns a page of up to 1000 objects, in one request. The cursor is the key with which the next page begins.
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
		files, next, err := in.bucket.ListFileNames(ctx, pageSize, cursor, namePrefix, "")
		if err != nil {
			return store.Page{}, err
		}
		page := store.Page{Now: noteOf(ctx).Date()}
		for _, f := range files {
			page.Objects = append(page.Objects, versionOf(f).object(strings.TrimPrefix(f.Name, s.prefix)))
		}
		if strings.HasPrefix(next, namePrefix) {
			page.Next = strings.TrimPrefix(next, s.prefix)
		}
		return page, nil
	})
}

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
				Readable bool `json:"isClientAuthorizedToRead"`
				Value    struct {
					Enabled bool `json:"isFileLockEnabled"`
				} `json:"value"`
			} `json:"fileLockConfiguration"`
		} `json:"buckets"`
	}
	err := s.post(ctx, in, "b2_list_buckets", map[string]any{"accountId": in.AccountID, "bucketId": in.bucket.ID}, &answer)
	for _, b := range answer.Buckets {
		switch {
		case b.ID != in.bucket.ID || !b.Lock.Readable:
		case b.Lock.Value.Enabled:
			return store.Yes, err
		default:
			return store.No, err
		}
	}
	return store.Unknown, err
}
