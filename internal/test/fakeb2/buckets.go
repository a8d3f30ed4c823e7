package fakeb2

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
)

func (s *Server) listBuckets(_ *http.Request, k Key, p params) (any, error) {
	if only := k.buckets(); only != nil {
		b := s.state.withID(p.BucketID)
		if !slices.Contains(only, p.BucketName) && (b == nil || !slices.Contains(only, b.Name)) {
			return nil, errUnauthorized
		}
	}
	found := []any{}
	for _, b := range s.state.buckets {
		if (p.BucketID == "" || p.BucketID == b.ID) && (p.BucketName == "" || p.BucketName == b.Name) {
			found = append(found, b.describe(k))
		}
	}
	return map[string]any{"buckets": found}, nil
}

func (b *bucket) describe(k Key) map[string]any {
	lock := map[string]any{"isClientAuthorizedToRead": false, "value": nil}
	if k.may("readBucketRetentions") {
		retention := map[string]any{"mode": nil, "period": nil}
		if b.Retain > 0 {
			retention = map[string]any{"mode": "governance", "period": map[string]any{"duration": max(1, int(b.Retain.Hours()/24)), "unit": "days"}}
		}
		lock = map[string]any{
			"isClientAuthorizedToRead": true,
			"value":                    map[string]any{"isFileLockEnabled": b.FileLock, "defaultRetention": retention},
		}
	}
	return map[string]any{
		"accountId": account, "bucketId": b.ID, "bucketName": b.Name, "bucketType": "allPrivate", "bucketInfo": map[string]string{},
		"corsRules": []any{}, "lifecycleRules": []any{}, "revision": 1, "fileLockConfiguration": lock,
	}
}

func (s *Server) createBucket(_ *http.Request, k Key, p params) (any, error) {
	if k.buckets() != nil {
		return nil, errUnauthorized
	}
	letters := strings.Trim(strings.ToLower(p.BucketName), "abcdefghijklmnopqrstuvwxyz0123456789-")
	switch {
	case len(p.BucketName) < 6 || len(p.BucketName) > 63 || letters != "" || strings.HasPrefix(p.BucketName, "b2-"):
		return nil, badRequest("bucketName %q is not valid", p.BucketName)
	case s.state.named(p.BucketName) != nil:
		return nil, refusal{http.StatusBadRequest, "duplicate_bucket_name", "Bucket name is already in use."}
	}
	if err := s.state.addBucket(Bucket{Name: p.BucketName}); err != nil {
		return nil, err
	}
	return s.state.named(p.BucketName).describe(k), nil
}

func (s *Server) deleteBucket(_ *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, k.Prefix)
	if err != nil {
		return nil, err
	}
	if len(b.names) > 0 {
		return nil, refusal{http.StatusBadRequest, "cannot_delete_non_empty_bucket", "Cannot delete non-empty bucket"}
	}
	described := b.describe(k)
	return described, s.state.do(entry{DeleteBucket: b.ID})
}

// uploadURL returns a URL and a token that works only there.
func (s *Server) uploadURL(r *http.Request, k Key, p params) (any, error) {
	b, err := s.bucket(k, p.BucketID, k.Prefix)
	if err != nil {
		return nil, err
	}
	use := fmt.Sprintf("upload%d", s.tokens.serial+1)
	return map[string]any{
		"bucketId":           b.ID,
		"uploadUrl":          fmt.Sprintf("%s/b2api/v3/b2_upload_file/%s/%s", base(r), b.ID, use),
		"authorizationToken": s.issue(k, use),
	}, nil
}
