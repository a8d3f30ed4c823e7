package b2

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// Store is a store in a bucket of Backblaze B2.
type Store struct {
	location
	keyID, key string
	transport  http.RoundTripper
	sessions   sessions
	authorized atomic.Bool // once at least

	mu sync.Mutex
	// wrote has the last version that this Store put under a key, by name.
	wrote map[string]version
	// owed are replacements of which it isn't known yet whether they were in time.
	owed map[string]claim
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Describer = (*Store)(nil)
)

// The environment variables that the application key is in.
const (
	envKeyID = "B2_APPLICATION_KEY_ID"
	envKey   = "B2_APPLICATION_KEY"
)

// Open gives the store at a URL, b2://bucket/prefix?endpoint=URL, with the
// application key of the environment. It makes no request.
func Open(ctx context.Context, u *url.URL) (*Store, error) {
	where, err := parse(u)
	if err != nil {
		return nil, err
	}
	keyID, key := os.Getenv(envKeyID), os.Getenv(envKey)
	if keyID == "" || key == "" {
		return nil, fmt.Errorf("%w: the application key is missing: set %s and %s", store.ErrConfig, envKeyID, envKey)
	}
	return &Store{
		location:  where,
		keyID:     keyID,
		key:       key,
		transport: &transport{web.Transport()},
		sessions:  newSessions(),
		wrote:     map[string]version{},
		owed:      map[string]claim{},
	}, ctx.Err()
}

// String is the repository's URL, and keeps the application key out of what
// formats a Store.
func (s *Store) String() string { return "b2://" + s.bucket + "/" + s.prefix }

// Properties are B2's: its native API has no conditional upload, and it stamps
// files itself.
func (s *Store) Properties() store.Properties {
	return store.Properties{Name: "b2", IfAbsent: store.Unsupported, IfMatch: store.Unsupported, StoreClock: true}
}

// maxSegment is how long an element of a name may be.
const maxSegment = 250

// name is the name that a key has in the bucket.
func (s *Store) name(ctx context.Context, key string) (string, error) {
	if err := ctx.Err(); err != nil {
		return "", err
	}
	if err := store.CheckKey(key); err != nil {
		return "", err
	}
	name := s.prefix + key
	return name, checkName(name)
}

// checkName keeps those of Backblaze's rules of names that CheckKey doesn't.
func checkName(name string) error {
	if len(name) > 1024 {
		return fmt.Errorf("%w: longer than 1024 bytes with the repository's prefix", store.ErrInvalidKey)
	}
	segment := 0
	for i, r := range name {
		switch {
		case unicode.IsControl(r) && r < 0x80:
			return fmt.Errorf("%w: a control character", store.ErrInvalidKey)
		case r == '/':
			segment = i + 1
		case i-segment >= maxSegment:
			return fmt.Errorf("%w: an element longer than 250 bytes", store.ErrInvalidKey)
		}
	}
	return nil
}
