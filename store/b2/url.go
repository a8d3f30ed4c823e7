package b2

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"net/url"
	"os"
	"strings"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/httptransport"
)

// location is the place of a store.
type location struct {
	endpoint string // of the server that authorizes
	bucket   string
	prefix   string // of all names: "", or with a slash at its end
}

var bucketName = lazyregexp.New(`^[A-Za-z0-9-]+$`)

// The environment variables of the application key.
const (
	envKeyID = "B2_APPLICATION_KEY_ID"
	envKey   = "B2_APPLICATION_KEY"
)

// Open returns the store at a URL, b2://bucket/prefix?endpoint=URL, with the application
// key of the environment. It makes no request. It returns the same errors as New.
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

// locate returns the place of a store. An empty address stands for Backblaze's.
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

// secure reports whether a request to a URL hides its secrets: it has TLS, or stays on this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: b2: "+format, append([]any{store.ErrURL}, args...)...)
}
