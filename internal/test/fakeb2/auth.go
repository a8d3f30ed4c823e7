package fakeb2

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Key is an application key.
type Key struct {
	ID, Secret string
	// Capabilities that it has; all if nil.
	Capabilities []string
	// Buckets restrict it to buckets, by name, if there are any, and Prefix to names that
	// begin so, if it isn't "".
	Buckets []string
	Prefix  string
}

// All are the capabilities of the master key, of those that matter here.
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

// inside reports whether a key is for this bucket and for names that begin so.
func (k Key) inside(b *bucket, name string) bool {
	return (k.Buckets == nil || b != nil && slices.Contains(k.Buckets, b.Name)) && strings.HasPrefix(name, k.Prefix)
}

const lifetime = 24 * time.Hour

// tokens are signed and not stored: they outlive the server, as Backblaze's
// outlive the failure of one of its machines.
type tokens struct {
	serial  int
	expired map[string]bool // issued before ExpireTokens
	issued  []string
	uses    map[string]int
	spent   map[string]bool // of upload URLs that have answered 503
	busy    map[string]bool // of upload URLs that are in use
}

func newTokens() tokens {
	return tokens{expired: map[string]bool{}, uses: map[string]int{}, spent: map[string]bool{}, busy: map[string]bool{}}
}

func (t *tokens) expire() {
	for _, token := range t.issued {
		t.expired[token] = true
	}
}

func (t *tokens) spend(token string) { t.spent[token] = true }

// issue makes a token of a key for an account or for an upload URL.
func (s *Server) issue(k Key, use string) string {
	s.tokens.serial++
	head := fmt.Sprintf("4_%s_%s_%d_%d", k.ID, use, time.Now().UnixMilli(), s.tokens.serial)
	token := head + "_" + sign(k, head)
	s.tokens.issued = append(s.tokens.issued, token)
	return token
}

func sign(k Key, head string) string {
	mac := hmac.New(sha256.New, []byte(k.Secret))
	mac.Write([]byte(head))
	return hex.EncodeToString(mac.Sum(nil))[:24]
}

// holder returns the key that a token for this use was made of.
func (s *Server) holder(token, use string) (Key, error) {
	bad := refusal{http.StatusUnauthorized, "bad_auth_token", "Invalid authorization token"}
	i := strings.LastIndex(token, "_")
	parts := strings.Split(token, "_")
	if i < 0 || len(parts) != 6 || parts[2] != use {
		return Key{}, bad
	}
	at := slices.IndexFunc(s.opts.Keys, func(k Key) bool { return k.ID == parts[1] })
	if at < 0 || !hmac.Equal([]byte(token[i+1:]), []byte(sign(s.opts.Keys[at], token[:i]))) {
		return Key{}, bad
	}
	issued, _ := strconv.ParseInt(parts[3], 10, 64)
	s.tokens.uses[token]++
	if s.tokens.expired[token] || time.Now().Sub(time.UnixMilli(issued)) > lifetime ||
		s.opts.TokenUses > 0 && s.tokens.uses[token] > s.opts.TokenUses {
		return Key{}, refusal{http.StatusUnauthorized, "expired_auth_token", "Authorization token has expired"}
	}
	return s.opts.Keys[at], nil
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
