package s3api

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// DeleteAll deletes many objects in one request. Only a key that the answer names as deleted
// counts: some servers leave out keys, and answer with success all the same. On a versioned
// bucket it treats each key as Delete does.
func (s *Store) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted := make([]bool, len(keys))
	index, covered := map[string]int{}, map[string][]string{}
	var names []string
	for i, key := range keys[:min(len(keys), store.MaxBatch)] {
		if store.CheckKey(key) != nil || !inXML(key) {
			continue
		}
		name := s.place.Prefix + key
		names, index[name], covered[name] = append(names, name), i, s.tidy.covered(key)
	}
	if s.unbatched.Load() || len(names) == 0 {
		return deleted, &store.Error{Op: "delete", Key: strings.Join(keys[:min(1, len(keys))], ""), Err: store.ErrBatchUnsent}
	}
	ctx, answer := httptransport.Watch(ctx, s.place.Own)
	r := request{op: "delete", key: keys[0], permission: "s3:DeleteObject", answer: answer}
	var done []Deleted
	err := s.once(ctx, r, func() (err error) {
		done, err = s.client.DeleteAll(ctx, names)
		return err
	})
	if err != nil {
		return deleted, s.batchFailed(ctx, r, err)
	}
	for _, d := range done {
		i, asked := index[d.Key]
		if !asked {
			continue
		}
		deleted[i] = true
		if d.Marker != "" {
			s.tidy.deleted(ctx, s, keys[i], d.Marker, covered[d.Key])
		}
	}
	return deleted, nil
}

// batchFailed returns the error of a request to delete many objects. A server that lacks it
// answers in many ways: 400, 405, 411, 501, a page, a success of another form. So each answer
// but that of a server that fails, or is throttling, means that the objects must be deleted one
// by one, and each of those requests has its own answer.
func (s *Store) batchFailed(ctx context.Context, r request, err error) error {
	failed := s.failed(ctx, r, err)
	status := r.answer.Status()
	if ctx.Err() != nil || status == 0 || httptransport.Passing(status) && status != http.StatusNotImplemented {
		return failed
	}
	if status >= 300 {
		s.unbatched.Store(true)
	}
	return &store.Error{Op: r.op, Key: r.key, Err: fmt.Errorf("%w: %w", store.ErrBatchUnsupported, failed)}
}

// inXML reports whether a key stays as it is in XML 1.0, which has no control characters, and in
// which parsers replace line ends.
func inXML(key string) bool {
	return !strings.ContainsFunc(key, func(r rune) bool { return r < 0x20 || r == 0xFFFE || r == 0xFFFF })
}
