package b2

import (
	"bytes"
	"context"
	"crypto/sha1"
	"encoding/hex"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// Get downloads an object.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	d, err := s.get(ctx, key, limit)
	if err != nil {
		return nil, store.Object{}, failed("get", key, err)
	}
	return d.body, d.object, nil
}

type download struct {
	body   []byte
	object store.Object
}

func (s *Store) get(ctx context.Context, key string, limit int64) (download, error) {
	name, err := s.name(ctx, key)
	if err != nil {
		return download{}, err
	}
	a, err := call(ctx, s, name, "readFiles", func(ctx context.Context, in *session) (answer, error) {
		ctx, told := web.Watch(ctx)
		// No range is asked for: B2 answers one of an empty file with an error.
		r, err := in.bucket.DownloadFileByName(ctx, name, 0, 0, false)
		return answer{r, told}, err
	})
	if asRefusal(err, http.StatusNotFound) {
		return download{}, store.ErrNotFound
	}
	if err != nil {
		return download{}, err
	}
	defer a.r.Close() // which ends the connection if there is more to come
	d, err := a.read(limit)
	d.object.Key = key
	return d, err
}

// answer is one to a download, with its headers, of which blazer passes on some.
type answer struct {
	r    *base.FileReader
	told *web.Answer
}

func (a answer) read(limit int64) (download, error) {
	if int64(a.r.ContentLength) > limit {
		return download{}, store.ErrTooLarge
	}
	body, err := io.ReadAll(a.r) // which is an error if it is shorter than announced
	if err != nil {
		return download{}, fmt.Errorf("reading the body: %w", err)
	}
	if err := verify(body, a.r.SHA1); err != nil {
		return download{}, err
	}
	v := version{id: a.r.ID, size: int64(len(body))}
	if ms, err := strconv.ParseInt(a.told.Header("X-Bz-Upload-Timestamp"), 10, 64); err == nil {
		v.time = time.UnixMilli(ms)
	}
	return download{body, v.object("")}, nil
}

// verify compares a body with its checksum, if the server tells one.
func verify(body []byte, want string) error {
	want = strings.TrimPrefix(want, "unverified:")
	expected, err := hex.DecodeString(want)
	if got := sha1.Sum(body); err == nil && len(expected) == len(got) && !bytes.Equal(expected, got[:]) {
		return fmt.Errorf("the body isn't what was stored: its checksum is wrong")
	}
	return nil
}
