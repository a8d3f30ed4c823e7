package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// Get downloads an object of at most limit bytes, in one request.
func (s *Store) Get(ctx context.Context, key string, limit int64) (_ []byte, o store.Object, err error) {
	defer func() { err = failed("get", key, err) }()
	name, err := s.name(ctx, key)
	if err != nil {
		return nil, o, err
	}
	type download struct {
		*base.FileReader
		answer *httptransport.Answer // with the headers that blazer doesn't return
	}
	d, err := call(ctx, s, name, "readFiles", func(ctx context.Context, in *session) (download, error) {
		ctx, answer := httptransport.Watch(ctx, nil)
		// No range is asked for: B2 answers one of an empty file with an error.
		r, err := in.bucket.DownloadFileByName(ctx, name, 0, 0, false)
		return download{r, answer}, err
	})
	if errors.Is(err, errNoObject) {
		return nil, o, store.ErrNotFound
	}
	if err != nil {
		return nil, o, err
	}
	defer d.Close() // which ends the connection if there is more to come
	if int64(d.ContentLength) > limit {
		return nil, o, store.ErrTooLarge
	}
	body, err := io.ReadAll(d) // which is an error if it is shorter than announced
	if err != nil {
		return nil, o, fmt.Errorf("reading the body: %w", err)
	}
	if err := verify(body, d.SHA1); err != nil {
		return nil, o, err
	}
	o = store.Object{Key: key, ETag: d.ID, Size: int64(len(body))}
	if ms, err := strconv.ParseInt(d.answer.Header("X-Bz-Upload-Timestamp"), 10, 64); err == nil {
		o.ModTime = time.UnixMilli(ms)
	}
	return body, o, nil
}

// verify compares a body with its checksum, if the server has sent one.
func verify(body []byte, want string) error {
	want = strings.TrimPrefix(want, "unverified:")
	expected, err := hex.DecodeString(want)
	if got := sha1.Sum(body); err == nil && len(expected) == len(got) && !bytes.Equal(expected, got[:]) {
		return fmt.Errorf("the body isn't what was stored: its checksum is wrong")
	}
	return nil
}
