package b2

import (
	"context"
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// Store is a store in a bucket of Backblaze B2. Its methods can be called concurrently.
type Store struct {
	location
	keyID, key string
	transport  http.RoundTripper

	// turn is full while a goroutine authorizes. It is no mutex, because a waiter's context can end.
	turn       chan struct{}
	current    atomic.Pointer[session]
	authorized atomic.Bool // at least once

	mu sync.Mutex
	// wrote has the last version that this Store has put, by name.
	wrote map[string]version
	// owed has the replacements that settle still has to check, by name.
	owed map[string]claim
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Describer = (*Store)(nil)
	_ store.Answerer  = (*Store)(nil)
)

// Options of a store. KeyID and Key are required.
type Options struct {
	// KeyID and Key are the application key, which is in B2_APPLICATION_KEY_ID and
	// B2_APPLICATION_KEY for Open.
	KeyID, Key string
	// Prefix of all names, with or without slashes around it.
	Prefix string
	// Endpoint is the https:// URL of the server that authorizes, Backblaze's if "". It
	// can be http:// on this machine.
	Endpoint string
}

// New returns the store in a bucket. It makes no request. The error is [store.ErrURL]
// for a bucket, a prefix or an endpoint that can't be used, and [store.ErrConfig] if the
// application key is missing.
func New(bucket string, opts Options) (*Store, error) {
	where, err := locate(bucket, opts.Prefix, opts.Endpoint)
	if err != nil {
		return nil, err
	}
	if opts.KeyID == "" || opts.Key == "" {
		return nil, fmt.Errorf("%w: the application key is missing: set KeyID and Key", store.ErrConfig)
	}
	return &Store{
		location:  where,
		keyID:     opts.KeyID,
		key:       opts.Key,
		transport: &transport{httptransport.Watched(httptransport.Bare())},
		turn:      make(chan struct{}, 1),
		wrote:     map[string]version{},
		owed:      map[string]claim{},
	}, nil
}

// String returns the repository's URL, so that formatting a Store doesn't show its key.
func (s *Store) String() string { return "b2://" + s.bucket + "/" + s.prefix }

// Properties returns the properties of B2: its native API has no conditional upload, and the server
// stamps files.
func (s *Store) Properties() store.Properties {
	return store.Properties{Name: "b2", IfAbsent: store.Unsupported, IfMatch: store.Unsupported, StoreClock: true}
}

// maxSegment is the length of the longest element of a name.
const maxSegment = 250

// name returns a key's name in the bucket.
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

// checkName checks Backblaze's rules for names, as far as CheckKey doesn't.
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
