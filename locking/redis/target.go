package redis

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/port"
)

// DefaultPrefix is in front of the key, unless the URL has a prefix of its own.
const DefaultPrefix = "bext:lock:"

// defaultPort is the port of Redis.
const defaultPort = 6379

// Target is what a URL names:
//
//	redis://[user@]HOST[:PORT][/DB]?key=KEY[&prefix=PREFIX][&password-file=FILE]
//	rediss://…[&ca=FILE]
//
// A Target that Parse has returned is canonical, so that two can be compared with ==.
type Target struct {
	// TLS is set for rediss.
	TLS bool
	// User is the ACL user, the server's default user if it is empty.
	User string
	// Host is a name in lower case or an address without brackets.
	Host string
	Port int
	DB   int
	// Key is the lock, which Redis keeps under Prefix+Key.
	Key, Prefix string
	// PasswordFile and CA are paths of files, or empty.
	PasswordFile, CA string
}

// Parse reads a URL. It opens no file and no connection. It refuses everything that it doesn't
// know, and a password, which every process could read in the arguments of this one. The error
// repeats no part of the URL.
func Parse(raw string) (Target, error) {
	t, err := parse(raw)
	if err != nil {
		return Target{}, fmt.Errorf("redis URL: %w", err)
	}
	return t, nil
}

func parse(raw string) (Target, error) {
	if !utf8.ValidString(raw) || strings.ContainsFunc(raw, unicode.IsControl) {
		return Target{}, errors.New("it has control characters, or isn't UTF-8: percent-encode them")
	}
	if strings.Contains(raw, "#") {
		return Target{}, errors.New("it has a fragment: write # as %23")
	}
	u, err := url.Parse(raw)
	if err != nil || u.Opaque != "" {
		return Target{}, errors.New("it can't be parsed: write redis://HOST:PORT/DB?key=KEY")
	}
	if u.Scheme != "redis" && u.Scheme != "rediss" {
		return Target{}, errors.New("its scheme is neither redis nor rediss")
	}
	t := Target{TLS: u.Scheme == "rediss", Prefix: DefaultPrefix}
	if t.User, err = user(u.User); err != nil {
		return Target{}, err
	}
	if t.Host, t.Port, err = address(u); err != nil {
		return Target{}, err
	}
	if t.DB, err = database(u); err != nil {
		return Target{}, err
	}
	if err := t.parameters(u.RawQuery); err != nil {
		return Target{}, err
	}
	return t, nil
}

func user(u *url.Userinfo) (string, error) {
	if u == nil {
		return "", nil
	}
	if _, ok := u.Password(); ok {
		return "", fmt.Errorf("it has a password, which other users can see in the list of processes: set %s, or use "+
			"password-file", PasswordVariable)
	}
	name := u.Username()
	if name == "" || strings.ContainsAny(name, "@:/ ") || bad(name) {
		return "", errors.New("the user in front of @ is empty or malformed")
	}
	return name, nil
}

func address(u *url.URL) (string, int, error) {
	host := strings.ToLower(u.Hostname())
	if host == "" || strings.ContainsAny(host, " ,/@") || bad(host) {
		return "", 0, errors.New("it must have exactly one host")
	}
	if a, err := netip.ParseAddr(host); err == nil {
		host = a.String()
	} else if strings.Contains(host, ":") {
		return "", 0, errors.New("the address in brackets isn't IPv6")
	}
	n, err := port.Of(u)
	return host, cmp.Or(int(n), defaultPort), err
}

func database(u *url.URL) (int, error) {
	path := strings.TrimPrefix(u.EscapedPath(), "/")
	if path == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(path)
	if err != nil || n < 0 || n > 1<<20 || strconv.Itoa(n) != path {
		return 0, errors.New("its path must be the number of a database: /0")
	}
	return n, nil
}

func (t *Target) parameters(query string) error {
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("its parameters can't be parsed: percent-encode % and ; in them")
	}
	fields := map[string]*string{"key": &t.Key, "prefix": &t.Prefix, "password-file": &t.PasswordFile, "ca": &t.CA}
	for name, got := range values {
		field, ok := fields[name]
		switch {
		case !ok:
			return errors.New("it has a parameter that isn't key, prefix, password-file or ca")
		case len(got) > 1:
			return fmt.Errorf("it has %s twice", name)
		case got[0] == "" && name != "prefix":
			return fmt.Errorf("its %s is empty", name)
		case bad(got[0]):
			return fmt.Errorf("its %s has control characters, or isn't UTF-8", name)
		}
		*field = got[0]
	}
	switch {
	case t.Key == "":
		return errors.New("it has no key: add ?key=KEY")
	case t.CA != "" && !t.TLS:
		return errors.New("ca is of no use without TLS: use rediss")
	}
	return checkName(t.Prefix + t.Key)
}

// bad reports whether a text has what no name should have.
func bad(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) }

// String returns the canonical URL, which Parse reads as the same Target. It has no credentials.
func (t Target) String() string {
	var s strings.Builder
	s.WriteString("redis")
	if t.TLS {
		s.WriteString("s")
	}
	s.WriteString("://")
	if t.User != "" {
		s.WriteString(url.User(t.User).String() + "@")
	}
	host := strings.ReplaceAll(t.Host, "%", "%25") // of a zone
	fmt.Fprintf(&s, "%s/%d?key=%s", net.JoinHostPort(host, strconv.Itoa(t.Port)), t.DB, escape(t.Key))
	if t.Prefix != DefaultPrefix {
		s.WriteString("&prefix=" + escape(t.Prefix))
	}
	if t.PasswordFile != "" {
		s.WriteString("&password-file=" + escape(t.PasswordFile))
	}
	if t.CA != "" {
		s.WriteString("&ca=" + escape(t.CA))
	}
	return s.String()
}

// Identity returns the same text for two Targets that are the same lock, whatever their users,
// files and schemes are. It can't know that two names are one server.
func (t Target) Identity() string {
	return fmt.Sprintf("redis %s %q", t.server(), t.Prefix+t.Key)
}

// server names the server and the database in messages.
func (t Target) server() string {
	return fmt.Sprintf("%s/%d", net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.DB)
}

// escape is url.QueryEscape, except that names stay readable.
func escape(s string) string {
	return strings.NewReplacer("%3A", ":", "%2F", "/").Replace(url.QueryEscape(s))
}
