package open

import (
	"fmt"
	"net/url"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/lazyregexp"
	"github.com/repolock/repolock/store"
)

// Location is a parsed URL or path.
type Location struct {
	// Scheme is the URL's scheme in lower case, and "file" for a path.
	Scheme string
	// Path is the path of the directory, in the system's form, if the scheme is "file".
	Path string
	// URL is set for the other schemes. It has a host, no user unless the scheme is "sftp", and its
	// scheme is in lower case. The backend checks the rest.
	URL *url.URL
}

// Parse parses a URL or a path. It doesn't check whether the repository exists, nor the parts of a URL that only the
// backend knows; see [Check]. It returns store.ErrURL, with a text that shows no part of the URL that could be a
// secret.
func Parse(rawURL string) (Location, error) {
	return parse(rawURL, runtime.GOOS == "windows")
}

func parse(raw string, windows bool) (Location, error) {
	if raw == "" {
		return Location{}, invalid("empty")
	}
	if strings.ContainsRune(raw, 0) {
		return Location{}, invalid("it has a NUL byte")
	}
	scheme, rest, ok := cutScheme(raw)
	_, known := lookup(scheme)
	wrong := elsewhere(scheme, rest)
	switch {
	case !ok && misspelled.MatchString(raw): // an error of the path would show the secret
		m := misspelled.FindStringSubmatch(raw)
		if m[1] != "" {
			return Location{}, invalid("a space or a quote is before %s: leave it out where the URL is set", strings.ToLower(m[2]))
		}
		return Location{}, invalid("the colon after %s is missing", strings.ToLower(m[2]))
	case !ok, windows && len(scheme) == 1: // a drive of Windows
		return Location{Scheme: "file", Path: raw}, nil
	case scheme == "file":
		path, err := filePath(rest, windows)
		return Location{Scheme: "file", Path: path}, err
	case known:
		u, err := bucketURL(scheme, rest)
		return Location{Scheme: scheme, URL: u}, err
	case wrong != "":
		return Location{}, invalid("%s", wrong)
	case len(scheme) == 1 && strings.HasPrefix(rest, `\`), len(scheme) == 1 && strings.HasPrefix(rest, "/"):
		return Location{}, invalid("it is a path of Windows, and this machine has another system; a path that has a colon is written ./a:b")
	case strings.Contains(rest, "@") && !strings.HasPrefix(rest, "//"):
		// The message doesn't show the scheme, because in user:password@host the scheme would be the user.
		return Location{}, invalid("unknown scheme (known: %s, or a path)", names())
	case strings.HasPrefix(rest, "/") && !strings.HasPrefix(rest, "//") && overSSH(raw) != "":
		return Location{}, invalid("unknown scheme %q; a directory on the server %s is written %s, and a path with a colon ./a:b", scheme, scheme, overSSH(raw))
	default:
		return Location{}, invalid("unknown scheme %q (known: %s, or a path; one with a colon is written ./a:b)", scheme, names())
	}
}

// misspelled matches a URL without its colon, or after a space or a quote, if a part of it could be a secret: a query, or
// a password, in which Amazon's can have slashes.
var misspelled = lazyregexp.New(`^(?is)([\s"']*)(s3|minio|b2|sftp)[:;.,]?//(.*:.*@|.*\?)`)

var schemeName = lazyregexp.New(`^[A-Za-z][A-Za-z0-9+.-]*$`)

// cutScheme cuts off the scheme of a URL, by RFC 3986: a letter, then letters,
// digits, "+", "-" and ".", then a colon.
func cutScheme(raw string) (scheme, rest string, ok bool) {
	scheme, rest, ok = strings.Cut(raw, ":")
	if !ok || !schemeName.MatchString(scheme) {
		return "", "", false
	}
	return strings.ToLower(scheme), rest, true
}

func isLetter(c byte) bool { return 'a' <= c|0x20 && c|0x20 <= 'z' }

// filePath returns the path of a file URL, by RFC 8089.
func filePath(rest string, windows bool) (string, error) {
	if after, ok := strings.CutPrefix(rest, "//"); ok {
		host, _, _ := strings.Cut(after, "/")
		if host != "" && !strings.EqualFold(host, "localhost") {
			return "", invalid("a file URL is of this machine, so it begins with file:/// and not with file://host")
		}
		rest = after[len(host):]
	}
	if !strings.HasPrefix(rest, "/") {
		return "", invalid("a file URL has an absolute path; a relative one is written without file:")
	}
	if strings.ContainsAny(rest, "?#") {
		return "", invalid("a file URL has no query or fragment; write ? and # in a name as %%3F and %%23")
	}
	path, err := url.PathUnescape(rest)
	if err != nil {
		return "", invalid("a percent sign isn't followed by two hexadecimal digits; write %% in a name as %%25")
	}
	if strings.ContainsRune(path, 0) {
		return "", invalid("it has a NUL byte")
	}
	if windows && len(path) >= 3 && isLetter(path[1]) && path[2] == ':' {
		path = path[1:] // remove the first slash of "/C:/repo"
	}
	return filepath.FromSlash(path), nil
}

// bucketURL parses the URL of an object store.
func bucketURL(scheme, rest string) (*url.URL, error) {
	if !strings.HasPrefix(rest, "//") {
		return nil, notOurs(scheme, rest)
	}
	tenant, plain := "", rest
	if m := ofTenant.FindStringSubmatch(rest); m != nil && scheme == "s3" {
		tenant, plain = m[1]+":", "//"+m[2]+m[3]
	}
	u, err := url.Parse(scheme + ":" + plain)
	secret := false
	if err == nil {
		u.Host = tenant + u.Host
	}
	if err == nil {
		_, secret = u.User.Password()
	}
	switch {
	case strings.HasPrefix(rest, "//arn:"):
		return nil, invalid("%s: %s", scheme, ofARN(rest))
	case err != nil && zone.MatchString(rest):
		return nil, invalid("%s: %%25 belongs before the zone of an IPv6 address, as in [fe80::1%%25eth0]", scheme)
	case err != nil:
		return nil, invalid("%s: it isn't a URL: a port must be a number, and %% must begin a code such as %%20 for a space", scheme) // err would quote the URL
	case scheme == "sftp" && secret:
		return nil, invalid("sftp: a password doesn't belong in a URL, because others might see it: use a key or ssh-agent")
	case u.User != nil && scheme != "sftp":
		return nil, invalid("%s: credentials don't belong in a URL, because others might see it: set them in the environment", scheme)
	case u.Host == "":
		return nil, invalid("%s: there is nothing between %s:// and the next slash", scheme, scheme)
	case u.Fragment != "":
		return nil, invalid("%s: it has a fragment; write # in a name as %%23", scheme)
	}
	if wrong := slip(rest); wrong != "" {
		return nil, invalid("%s: %s", scheme, wrong)
	}
	return u, nil
}

// ofTenant matches a bucket of a tenant of Ceph's, TENANT:BUCKET, or a server's port, which the backend refuses.
var ofTenant = lazyregexp.New(`^//([A-Za-z0-9_]*)(?::|%3[Aa])([A-Za-z0-9._-]+)((?:[/?#].*)?)$`)

// zone matches an IPv6 address whose zone isn't written as in a URL.
var zone = lazyregexp.New(`\[[0-9A-Fa-f:.]+%`)

// ofARN describes the mistake in a URL whose bucket is an ARN.
func ofARN(arn string) string {
	if strings.Contains(arn, ":accesspoint") {
		return "it names an access point by its ARN: write the access point's alias, which AWS shows beside it, in place of the bucket"
	}
	return "it has an ARN: write the bucket's name alone"
}

// slip describes a probable mistake in a URL, or returns "". With such a mistake the URL names another place than the
// user means. Two holders that lock in different places don't see each other.
func slip(rest string) string {
	path, query, _ := strings.Cut(rest, "?")
	switch {
	case strings.TrimSpace(path) != path, strings.TrimSpace(query) != query:
		return "there is a space at its end or before its ?; write a space in a name as %20"
	case parameter.MatchString(path):
		return "write ? before its first option, and not &; write & in a name as %26"
	case strings.Contains(query, "?"):
		return "it has a second ?: write & between its options"
	default:
		return ""
	}
}

// parameter matches an option in a URL.
var parameter = lazyregexp.New(`&[a-z_-]+=`)

// elsewhere returns the reason why a scheme of other backup programs can't be used, or "". Either the store can't hold
// our locks, or repolock writes its URL in another form.
func elsewhere(scheme, rest string) string {
	switch scheme {
	case "ssh", "scp":
		if ours := overSSH(rest); ours != "" {
			return "it is written as in Borg; here it is " + ours
		}
		return "a directory on a server that has SSH is written sftp://USER@HOST:PORT/PATH"
	case "rest":
		return notShared("a REST server of restic")
	case "azure", "az":
		return notShared("Azure")
	case "gs", "gcs":
		return notShared("Google Cloud Storage")
	case "swift", "webdav", "ftp", "smb":
		return notShared(scheme)
	case "arn":
		return ofARN(rest) + ", as in s3://BUCKET/PREFIX"
	case "rclone":
		return "repolock doesn't know rclone's remotes: name the bucket or the directory itself, as in s3://BUCKET/PREFIX or sftp://USER@HOST/PATH"
	case "http", "https":
		return fmt.Sprintf("it names only a server: a bucket there is s3://BUCKET/PREFIX?endpoint=%s://HOST, or minio://HOST:PORT/BUCKET/PREFIX", scheme)
	default:
		return ""
	}
}

func notShared(what string) string {
	return "repolock keeps no locks in " + what + ": name a bucket on S3, MinIO or B2, a directory on an SSH server, or one that all machines mount"
}

// notOurs returns the error for a URL without //, as other programs write it. It shows our form of that URL only if no
// part of it could be a secret.
func notOurs(scheme, rest string) error {
	form := "s3://BUCKET/PREFIX"
	if s, ok := lookup(scheme); ok {
		form = s.Example
	}
	if !strings.ContainsAny(rest, "?#%") && (scheme == "sftp" || !strings.Contains(rest, "@")) {
		if ours := translated(scheme, rest); ours != "" {
			return invalid("it is written as in restic; here it is %s", ours)
		}
	}
	err := invalid("%s: it is written %s", scheme, form)
	if place := strings.TrimLeft(rest, "/"); slices.Contains([]string{"s3", "b2", "minio", "sftp"}, scheme) && plain.MatchString(place) {
		return fault.Advise(err, "did you mean "+scheme+"://"+place+"?")
	}
	return err
}

// plain matches a bucket or a host and a path, in which nothing can be a secret.
var plain = lazyregexp.New(`^[\w.-]+(:\d+)?(/[\w./-]*)?$`)

// translated returns our form of one of restic's URLs, or "". Restic writes s3:HOST/BUCKET/PREFIX, with or without a
// protocol before the host, or b2:BUCKET:PREFIX.
func translated(scheme, rest string) string {
	switch scheme {
	case "s3":
		protocol, address, ok := strings.Cut(rest, "://")
		if !ok {
			protocol, address = "https", rest
		}
		host, path, _ := strings.Cut(address, "/")
		if path == "" || !ok && !strings.ContainsAny(host, ".:") {
			return ""
		}
		ours := "s3://" + strings.TrimSuffix(path, "/")
		if host != "s3.amazonaws.com" {
			ours += "?endpoint=" + protocol + "://" + host
		}
		return ours
	case "b2":
		bucket, prefix, _ := strings.Cut(rest, ":")
		if bucket == "" || strings.Contains(prefix, ":") {
			return ""
		}
		return strings.TrimSuffix("b2://"+bucket+"/"+strings.Trim(prefix, "/"), "/")
	case "sftp":
		return overSSH(rest)
	default:
		return ""
	}
}

// overSSH returns our form of restic's USER@HOST:PATH, or of Borg's //USER@HOST:PORT/PATH. Borg's path is absolute
// unless it begins with /./ or /~/. overSSH returns "" if a part could be a secret.
func overSSH(rest string) string {
	address, borg := strings.CutPrefix(rest, "//")
	user, host, named := strings.Cut(address, "@")
	if !named {
		user, host = "", address
	}
	separator := ":"
	if borg {
		separator = "/"
	}
	host, path, ok := strings.Cut(host, separator)
	if !ok || host == "" || path == "" || strings.ContainsAny(user, ":/") || strings.ContainsAny(rest, "?#%") {
		return ""
	}
	if borg && strings.HasPrefix(path, "./") || strings.HasPrefix(path, "~/") {
		path = path[2:]
	} else if borg {
		path = "/" + path
	}
	if named {
		user += "@"
	}
	return "sftp://" + user + host + "/" + path
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{store.ErrURL}, args...)...)
}
