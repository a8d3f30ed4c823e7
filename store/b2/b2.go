// Package b2 is a store in a bucket of Backblaze B2, through its native API:
//
//	b2://bucket/prefix?endpoint=URL
//
// [Open] takes such a URL, and the application key from B2_APPLICATION_KEY_ID and B2_APPLICATION_KEY. [New] takes both
// from its options. The endpoint is the server that authorizes, Backblaze's own by default. It must be https://, except
// on this machine.
//
// # Cost and guarantees
//
// List, Get and Put are one request each, and Delete is two. A Put over a version of the same Store is two, and one
// with PutOptions.Replaces three. A session adds an authorization and a request for the bucket's ID, at first use and
// once a day. It also adds a request for an upload URL for each upload that runs at the same time as another. The Store
// repeats a request only if the server refused it because an authorization had expired.
//
// An object is the newest version of its name. Its ETag is the version's ID, and its mod time is Backblaze's upload
// timestamp. There are no conditional puts.
//
// Delete removes every version of a name, the newest last, so that readers never see an older one. A Put removes the
// version that the same Store put under the key before. Other older versions stay, and readers don't see them.
//
// A Put with PutOptions.Replaces then lists the versions. If another version than the one to replace is directly below
// its own, the Put removes its own version. So a late refresh doesn't restore a lock that was broken. If a deletion
// runs at the same time, both delete the replaced version, and B2 reports success to only one of them. That one counts
// as the first: either the Put fails, or the deletion also removes the new version. If the Put succeeds, it removes the
// versions that it covers, so that a refreshed object has one version.
//
// # What the application key must be able to do
//
//	status              listFiles, readFiles
//	shared, exclusive   listFiles, readFiles, writeFiles, deleteFiles
//
// The key also needs listBuckets, unless it is restricted to the bucket, which is better, or to several buckets that
// include this one. The key can be restricted to names that begin with the repository's prefix, or with prefix/index/,
// where the locks are. An error names the capability that is missing.
//
// Without deleteFiles, or if Object Lock retains a version, Delete hides the object instead: readers don't see it, and
// its versions stay until a lifecycle rule removes them (daysFromHidingToDeleting on the prefix). If such a Put must
// take back its version, it covers the version with a hide marker or with a copy of the version before. Without
// listFiles no lock works.
//
// # Caveats
//
// If a process crashes or gets no answer between an upload and the requests that follow it, the versions below the
// upload stay until any client refreshes or deletes the object. Readers don't see them. If the Put had to remove its
// own version, that version stays, as on a store without versions. The same Store removes it before it replaces it. If
// an upload got no answer, or came after the deletion of its object, its version stays until a client deletes it.
//
// A Put without deleteFiles can miss a deletion that listed the versions before the upload: then its version stays. It
// never misses a deletion that hides.
//
// A lifecycle rule on the bucket that hides files (daysFromUploadingToHiding) would end a lock that isn't refreshed for
// as many days. A refresh uploads the lock again, so a rule of one day does no harm.
//
// The Date of an answer and the timestamp of an upload count as one clock, though Backblaze has many machines.
//
// Uploads, deletions and hiding are free of charge (class A), downloads are class B, listings and authorizations class
// C. A holder lists twice in each half of the ttl, and four times if the lock is exclusive. An element of a name is at
// most 250 bytes long, and no name has control characters. Other keys are store.ErrInvalidKey.
//
// # How blazer is used
//
// Its package base makes one request for each call, in the third version of the API. The transport records the facts
// that base doesn't return: the key's capabilities, headers, and the error of a request without an answer. The third
// version refuses keys that the fourth has made for certain buckets (multi-bucket application keys, which the b2
// command makes even for one). So the transport sends the authorization to the fourth version. If the key is restricted
// to the bucket, the transport answers blazer's request for the bucket's ID. This package sends b2_copy_file itself,
// which base lacks, and b2_list_buckets for Object Lock, which base leaves out.
//
// The tests run on a fake of the native API, internal/test/fakeb2, because no other server implements it.
package b2

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"unicode"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// Store is a store in a bucket of Backblaze B2. Its methods can be called concurrently.
type Store struct {
	location
	keyID, key string
	transport  http.RoundTripper

	// turn is full while a goroutine authorizes. It is a channel and no mutex, because a waiting goroutine's context
	// can end.
	turn       chan struct{}
	current    atomic.Pointer[session]
	authorized atomic.Bool // the server has authorized this Store at least once

	mu sync.Mutex
	// wrote has, by name, the last version that this Store has put.
	wrote map[string]version
	// unsettled has, by name, the replacements that settle still has to check.
	unsettled map[string]replacement
}

var (
	_ store.Store     = (*Store)(nil)
	_ store.Describer = (*Store)(nil)
)

// Options are the options of a store. KeyID and Key are required.
type Options struct {
	// KeyID and Key are the application key. Open takes it from B2_APPLICATION_KEY_ID and
	// B2_APPLICATION_KEY.
	KeyID, Key string
	// Prefix is the prefix of all names, with or without slashes around it.
	Prefix string
	// Endpoint is the https:// URL of the server that authorizes, Backblaze's if "". It
	// can be http:// on this machine.
	Endpoint string
}

// New returns the store in a bucket. It makes no request. It returns [store.ErrURL] if the bucket, the prefix or the
// endpoint can't be used, and [store.ErrConfig] if the application key is missing.
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
		unsettled: map[string]replacement{},
	}, nil
}

// String returns the repository's URL, so that formatting a Store doesn't show its key.
func (s *Store) String() string { return "b2://" + s.bucket + "/" + s.prefix }

// Properties returns the properties of B2: its native API has no conditional upload, and the server
// stamps files.
func (s *Store) Properties() store.Properties {
	return store.Properties{Name: "b2", IfAbsent: store.Unsupported, IfMatch: store.Unsupported, StoreClock: true}
}

// maxSegment is the longest element of a name that B2 accepts, in bytes.
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

// checkName checks Backblaze's rules for names, except for the rules that CheckKey checks.
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

// location is where a store is: its server, bucket and prefix.
type location struct {
	endpoint string // URL of the server that authorizes
	bucket   string
	prefix   string // prefix of all names: "", or with a slash at its end
}

var bucketName = lazyregexp.New(`^[A-Za-z0-9-]+$`)

// The environment variables of the application key.
const (
	envKeyID = "B2_APPLICATION_KEY_ID"
	envKey   = "B2_APPLICATION_KEY"
)

// Open returns the store at a URL, b2://bucket/prefix?endpoint=URL. It takes the application key from the environment,
// and makes no request. It returns the same errors as New.
func Open(ctx context.Context, u *url.URL) (*Store, error) {
	opts, err := parse(u)
	if err != nil {
		return nil, err
	}
	opts.KeyID, opts.Key = os.Getenv(envKeyID), os.Getenv(envKey)
	if opts.KeyID == "" || opts.Key == "" {
		return nil, fmt.Errorf("%w: the application key is missing: set %s and %s", store.ErrConfig, envKeyID, envKey)
	}
	s, err := New(u.Host, opts)
	if err != nil {
		return nil, err
	}
	return s, ctx.Err()
}

// Check returns the store.ErrURL that Open would return for a URL, or nil. It makes no request.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

func parse(u *url.URL) (Options, error) {
	query, err := httptransport.Query(u, "endpoint")
	_, err1 := locate(u.Host, u.Path, query["endpoint"])
	return Options{Prefix: u.Path, Endpoint: query["endpoint"]}, cmp.Or(err1, err)
}

// locate checks the parts of a store's location, and returns it. An empty address means Backblaze's server.
func locate(bucket, path, address string) (l location, err error) {
	l = location{endpoint: base.APIBase, bucket: bucket}
	if !bucketName.MatchString(l.bucket) {
		return l, invalid("%q is not a bucket's name: letters, digits and hyphens", l.bucket)
	}
	if prefix := strings.TrimSuffix(strings.TrimPrefix(path, "/"), "/"); prefix != "" {
		l.prefix = prefix + "/"
		if store.CheckKey(prefix) != nil || checkName(prefix) != nil {
			return l, invalid("no file's name can begin with %q", prefix)
		}
	}
	if address != "" {
		l.endpoint, err = endpoint(address)
	}
	return l, err
}

func endpoint(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", invalid("the endpoint is written https://host")
	}
	if _, err := port.Of(u); err != nil {
		return "", invalid("%w", err)
	}
	if !secure(u) {
		return "", invalid("the endpoint must be https://: the application key would be sent in the clear")
	}
	return u.Scheme + "://" + u.Host, nil
}

// secure reports whether a request to a URL hides its secrets: it has TLS, or doesn't leave this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: b2: "+format, append([]any{store.ErrURL}, args...)...)
}
