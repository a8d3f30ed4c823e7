package b2

import (
	"fmt"
	"net"
	"net/url"
	"regexp"
	"strings"

	"github.com/Backblaze/blazer/base"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/web"
)

// location is what a URL says.
type location struct {
	endpoint string // the server that authorizes
	bucket   string
	prefix   string // of all names, "" or with a slash at its end
}

var bucketName = regexp.MustCompile(`^[A-Za-z0-9-]+$`)

// Check finds what is wrong with a URL before anything is opened.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

func parse(u *url.URL) (location, error) {
	l := location{endpoint: base.APIBase, bucket: u.Host}
	if !bucketName.MatchString(l.bucket) {
		return l, invalid("%q is not a bucket's name: letters, digits and hyphens", l.bucket)
	}
	if prefix := strings.TrimSuffix(strings.TrimPrefix(u.Path, "/"), "/"); prefix != "" {
		l.prefix = prefix + "/"
		if store.CheckKey(prefix) != nil || checkName(prefix) != nil {
			return l, invalid("no file's name can begin with %q", prefix)
		}
	}
	query, err := web.Query(u, "endpoint")
	if err != nil {
		return l, err
	}
	if query["endpoint"] != "" {
		l.endpoint, err = endpoint(query["endpoint"])
	}
	return l, err
}

func endpoint(raw string) (string, error) {
	u, err := url.Parse(raw)
	if err != nil || u.Host == "" || u.User != nil || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return "", invalid("the endpoint is written https://host")
	}
	if !secure(u) {
		return "", invalid("the endpoint must be https://: the application key would be sent in the clear")
	}
	return u.Scheme + "://" + u.Host, nil
}

// secure says whether secrets may be sent there: with TLS, or to this machine.
func secure(u *url.URL) bool {
	ip := net.ParseIP(u.Hostname())
	return u.Scheme == "https" || u.Scheme == "http" && (u.Hostname() == "localhost" || ip != nil && ip.IsLoopback())
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: b2: "+format, append([]any{store.ErrURL}, args...)...)
}
