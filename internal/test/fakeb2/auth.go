package fakeb2

import (
	"crypto/rand"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
)

// Key is an application key.
type Key struct {
	ID, Secret string
	// Capabilities that it has; all if nil.
	Capabilities []string
	// Buckets restricts the key to these buckets, unless it is nil, and Prefix to names with this prefix.
	Buckets []string
	Prefix  string
}

// All lists the capabilities of the master key, without those that no call here checks.
var All = []string{
	"listKeys", "writeKeys", "deleteKeys", "listAllBucketNames", "listBuckets", "readBuckets", "writeBuckets", "deleteBuckets",
	"readBucketRetentions", "writeBucketRetentions", "listFiles", "readFiles", "shareFiles", "writeFiles", "deleteFiles",
	"readFileRetentions", "writeFileRetentions", "bypassGovernance",
}

func (k Key) capabilities() []string {
	if k.Capabilities == nil {
		return All
	}
	return k.Capabilities
}

func (k Key) may(capability string) bool { return slices.Contains(k.capabilities(), capability) }

// inside reports whether a key allows this bucket and all names with this prefix.
func (k Key) inside(b *bucket, name string) bool {
	return (k.Buckets == nil || b != nil && slices.Contains(k.Buckets, b.Name)) && strings.HasPrefix(name, k.Prefix)
}

const lifetime = 24 * time.Hour

// token is good for an account, or for one upload URL.
type token struct {
	key     Key
	use     string
	issued  time.Time
	expired bool // by ExpireTokens
	spent   bool // its upload URL has answered 503
	busy    bool // its upload URL is in use
	uses    int
}

// issue makes a token of a key for an account or for an upload URL.
func (s *Server) issue(k Key, use string) string {
	name := fmt.Sprintf("4_%s_%s_%s", k.ID, use, rand.Text())
	s.tokens[name] = &token{key: k, use: use, issued: time.Now()}
	return name
}

// token returns a token for this use.
func (s *Server) token(name, use string) (*token, error) {
	t := s.tokens[name]
	if t == nil || t.use != use {
		return nil, refusal{http.StatusUnauthorized, "bad_auth_token", "Invalid authorization token"}
	}
	t.uses++
	if t.expired || time.Since(t.issued) > lifetime || s.opts.TokenUses > 0 && t.uses > s.opts.TokenUses {
		return nil, refusal{http.StatusUnauthorized, "expired_auth_token", "Authorization token has expired"}
	}
	return t, nil
}

// authorize is b2_authorize_account, of the fourth version: the third refuses multi-bucket keys.
func (s *Server) authorize(w http.ResponseWriter, r *http.Request) error {
	if !strings.HasPrefix(r.URL.Path, "/b2api/v4/") {
		return badRequest("This request is not currently supported on API version number 3")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	id, secret, _ := r.BasicAuth()
	at := slices.IndexFunc(s.opts.Keys, func(k Key) bool { return k.ID == id && k.Secret == secret })
	if at < 0 {
		return refusal{http.StatusUnauthorized, "bad_auth_token", "invalid applicationKeyId or applicationKey"}
	}
	k := s.opts.Keys[at]
	var buckets []any
	for _, name := range k.Buckets {
		id, known := s.nameOf(name)
		buckets = append(buckets, map[string]any{"id": id, "name": known})
	}
	return reply(w, map[string]any{
		"accountId":          account,
		"authorizationToken": s.issue(k, "account"),
		"apiInfo": map[string]any{"storageApi": map[string]any{
			"apiUrl": base(r), "downloadUrl": base(r), "absoluteMinimumPartSize": 5000000, "recommendedPartSize": 100000000,
			"allowed": map[string]any{"buckets": buckets, "capabilities": k.capabilities(), "namePrefix": orNull(k.Prefix)},
		}},
	})
}

// nameOf is the ID and the name of a bucket that a key is restricted to. The name is null
// once the bucket is gone.
func (s *Server) nameOf(bucket string) (id string, name any) {
	if b := s.state.named(bucket); b != nil {
		return b.ID, b.Name
	}
	return strings.Repeat("f", 24), nil
}

func orNull(s string) any {
	if s == "" {
		return nil
	}
	return s
}

const account = "00000000000a"
