package postgres

import (
	"cmp"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/locking"
)

// Target is what a URL names: a key in one database of one server. Targets can be compared.
type Target struct {
	// Host is a name, an IP address, or the directory of a Unix socket. Port is 5432 unless
	// the URL says otherwise.
	Host string
	Port uint16
	// User is empty if PGUSER or the system's user is to be taken.
	User, Database, Key string
	// SSLMode is one of libpq's; if it is empty, PGSSLMODE or "prefer" is taken. The files
	// are those of libpq's parameters of these names.
	SSLMode, SSLRootCert, SSLCert, SSLKey string
	// Passfile has the password; if it is empty, PGPASSFILE or ~/.pgpass is taken.
	Passfile string
	// SessionPooler declares that a pooler stands before the server, and lends a session for
	// as long as a connection lasts.
	SessionPooler bool
}

// defaultPort is PostgreSQL's.
const defaultPort = 5432

// maxKey is the length of a key in bytes.
const maxKey = 512

// Parse parses a URL:
//
//	postgres://[USER@]HOST[:PORT]/DATABASE?key=KEY
//	postgres:///DATABASE?host=/DIR&key=KEY
//
// The second form is that of a Unix socket, whose port is port=PORT. Other parameters are
// sslmode, sslrootcert, sslcert, sslkey, passfile and pooler=session. The scheme can be postgresql.
// A plus sign stands for itself. Parse reads no file and makes no connection. Its errors don't
// quote what could be a password.
func Parse(raw string) (Target, error) {
	if strings.ContainsFunc(raw, control) {
		return Target{}, invalid("it has a control character")
	}
	scheme, _, _ := strings.Cut(raw, ":")
	if s := strings.ToLower(scheme); s != "postgres" && s != "postgresql" || !strings.HasPrefix(raw[len(scheme):], "://") {
		return Target{}, invalid("it must begin with postgres://")
	}
	if strings.Contains(raw, "#") {
		return Target{}, invalid("it has a fragment; write # as %%23")
	}
	authority, _, _ := strings.Cut(raw[len(scheme)+len("://"):], "/")
	u, err := url.Parse(raw)
	if err != nil || strings.Count(authority, "@") > 1 { // programs differ about which of them ends the user
		return Target{}, invalid("it isn't written as a URL with one host is") // err quotes it
	}
	t := Target{User: u.User.Username()}
	if _, set := u.User.Password(); set {
		return Target{}, invalid("it has a password, which all processes can see: set %s instead", PasswordVariable)
	}
	if u.User != nil && t.User == "" {
		return Target{}, invalid("the user before @ is empty")
	}
	if t.Database, err = database(u.EscapedPath()); err != nil {
		return Target{}, err
	}
	if err := t.parameters(u.RawQuery); err != nil {
		return Target{}, err
	}
	if err := t.address(u); err != nil {
		return Target{}, err
	}
	for _, s := range []string{t.User, t.Database, t.Key, t.Host, t.SSLRootCert, t.SSLCert, t.SSLKey, t.Passfile} {
		if strings.ContainsFunc(s, control) {
			return Target{}, invalid("it has a control character")
		}
	}
	return t, nil
}

// database returns the one segment of a path.
func database(path string) (string, error) {
	name, ok := strings.CutPrefix(path, "/")
	if !ok || name == "" || strings.Contains(name, "/") {
		return "", invalid("one database must follow the host: postgres://HOST/DATABASE?key=KEY")
	}
	return url.PathUnescape(name)
}

// address sets host and port. A directory in t.Host is there already.
func (t *Target) address(u *url.URL) error {
	if t.Host != "" {
		if u.Host != "" {
			return invalid("host=/DIR is a socket: write nothing but a user between // and the next slash")
		}
		return nil
	}
	if t.Port != 0 {
		return invalid("port is for sockets (host=/DIR): write HOST:PORT")
	}
	t.Host = strings.ToLower(u.Hostname())
	if ip, err := netip.ParseAddr(t.Host); err == nil {
		t.Host = ip.String()
	} else if t.Host == "" || strings.Trim(t.Host, "abcdefghijklmnopqrstuvwxyz0123456789.-_") != "" {
		return invalid("it must name exactly one host")
	}
	n, err := port.Of(u)
	return t.setPort(cmp.Or(n, defaultPort), err)
}

func (t *Target) setPort(n uint16, err error) error {
	if err != nil {
		return invalid("%w", err)
	}
	t.Port = n
	return nil
}

// String returns the URL without credentials. Parse returns the same Target for it.
func (t Target) String() string {
	var b strings.Builder
	b.WriteString("postgres://")
	if t.User != "" {
		b.WriteString(url.User(t.User).String() + "@")
	}
	socket := t.socket()
	if !socket {
		host := net.JoinHostPort(strings.ReplaceAll(t.Host, "%", "%25"), strconv.Itoa(int(t.Port)))
		b.WriteString(strings.TrimSuffix(host, ":"+strconv.Itoa(defaultPort)))
	}
	b.WriteString("/" + url.PathEscape(t.Database))
	separator := "?"
	add := func(name, value string, set bool) {
		if set {
			b.WriteString(separator + name + "=" + escape(value))
			separator = "&"
		}
	}
	add("host", t.Host, socket)
	add("port", strconv.Itoa(int(t.Port)), socket && t.Port != defaultPort)
	add("key", t.Key, true)
	add("passfile", t.Passfile, t.Passfile != "")
	add("pooler", "session", t.SessionPooler)
	add("sslcert", t.SSLCert, t.SSLCert != "")
	add("sslkey", t.SSLKey, t.SSLKey != "")
	add("sslmode", t.SSLMode, t.SSLMode != "")
	add("sslrootcert", t.SSLRootCert, t.SSLRootCert != "")
	return b.String()
}

// server names the database without the key, for messages.
func (t Target) server() string {
	if t.socket() {
		return t.Host + "/.s.PGSQL." + strconv.Itoa(int(t.Port)) + ", database " + strconv.Quote(t.Database)
	}
	return net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port))) + ", database " + strconv.Quote(t.Database)
}

// socket reports whether the host is a directory.
func (t Target) socket() bool { return strings.HasPrefix(t.Host, "/") }

// checkKey returns an ErrKey for what the server can't hash.
func checkKey(key string) error {
	switch {
	case key == "":
		return keyError("it is empty")
	case len(key) > maxKey:
		return keyError("it has " + strconv.Itoa(len(key)) + " bytes, and can have " + strconv.Itoa(maxKey))
	case strings.ContainsRune(key, 0):
		return keyError("it has a NUL byte")
	case strings.ToValidUTF8(key, "") != key:
		return keyError("it is no UTF-8")
	}
	return nil
}

func keyError(why string) error {
	return &classed{locking.ErrKey, "postgres: the key can't be hashed: " + why}
}
