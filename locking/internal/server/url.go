package server

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/repolock/repolock/internal/port"
)

// Syntax is the syntax of the URLs of one kind of server's locks.
type Syntax struct {
	Schemes []string // in lower case
	Form    string   // an example for messages: "redis://HOST:PORT/DB?key=KEY"
	Secret  string   // advice for a URL with a password: "set VARIABLE"
	// Parameters are the names of all parameters, in the order of the canonical URL. "key" must be one of them.
	Parameters []string
	Empty      string // name of the parameter that can be empty
	Literal    bool   // in a parameter a plus sign means itself, and a semicolon is allowed
}

// URL is a parsed URL. Its strings are unescaped UTF-8 without control characters.
type URL struct {
	Scheme, User string // User can be empty
	Host         string // a name in lower case or an address without brackets, or empty
	Port         uint16 // 0 if the URL has none
	Path         string // without its first slash
	Parameters   map[string]string
}

// Parse parses a URL. It refuses a password, because every user could read it in the list of processes. It also refuses
// unknown parameters. The error quotes no part of the URL.
func (s Syntax) Parse(raw string) (u URL, err error) {
	if Bad(raw) {
		return u, errors.New("it has control characters, or isn't UTF-8: percent-encode them")
	}
	if strings.Contains(raw, "#") {
		return u, errors.New("it has a fragment: write # as %23")
	}
	parsed, err := url.Parse(raw)
	_, after, absolute := strings.Cut(raw, "://")
	authority := after[:strings.IndexAny(after+"/", "/?")]
	// A URL with two @ is refused: for some programs the user ends at the first @, for others at the last.
	if err != nil || !absolute || strings.Count(authority, "@") > 1 || !slices.Contains(s.Schemes, parsed.Scheme) {
		return u, errors.New("it can't be parsed: write " + s.Form)
	}
	u.Scheme, u.User = parsed.Scheme, parsed.User.Username()
	if _, set := parsed.User.Password(); set {
		return u, s.password()
	}
	if parsed.User != nil && u.User == "" {
		return u, errors.New("the user before @ is empty")
	}
	u.Host = strings.ToLower(parsed.Hostname())
	if ip, err := netip.ParseAddr(u.Host); err == nil {
		u.Host = ip.String()
	} else if strings.ContainsFunc(u.Host, func(r rune) bool { return r < utf8.RuneSelf && !strings.ContainsRune(hostname, r) }) {
		return u, errors.New("it must have exactly one host")
	}
	if u.Port, err = port.Of(parsed); err != nil {
		return u, err
	}
	escaped := strings.TrimPrefix(parsed.EscapedPath(), "/")
	if strings.Contains(escaped, "/") {
		return u, errors.New("its path has more than one part: write " + s.Form)
	}
	if u.Path, err = url.PathUnescape(escaped); err != nil || Bad(u.Path+u.User) {
		return u, errors.New("its user or its path has control characters, or isn't UTF-8")
	}
	u.Parameters, err = s.parameters(parsed.RawQuery)
	return u, err
}

// hostname has the ASCII characters that can be in a host's name.
const hostname = "abcdefghijklmnopqrstuvwxyz0123456789.-_"

// Bad reports whether s isn't UTF-8 or has control characters.
func Bad(s string) bool { return !utf8.ValidString(s) || strings.ContainsFunc(s, unicode.IsControl) }

func (s Syntax) password() error {
	return errors.New("it has a password, which other users can see in the list of processes: " + s.Secret)
}

// parameters parses a query. It returns an error if a parameter occurs twice, or if key is missing.
func (s Syntax) parameters(query string) (map[string]string, error) {
	unescape := url.QueryUnescape
	if s.Literal {
		unescape = url.PathUnescape
	}
	all := make(map[string]string)
	for pair := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(pair, "=")
		value, err := unescape(escaped)
		_, twice := all[name]
		switch {
		case pair == "":
			continue
		case strings.Contains(name, "password") && !slices.Contains(s.Parameters, name):
			return nil, s.password()
		case !slices.Contains(s.Parameters, name): // the error doesn't quote the name, because it can be a part of a password
			return nil, fmt.Errorf("it has a parameter that isn't one of %s", strings.Join(s.Parameters, ", "))
		case err != nil || !s.Literal && strings.Contains(escaped, ";"):
			return nil, errors.New("its parameters can't be parsed: percent-encode % and ; in them")
		case twice:
			return nil, fmt.Errorf("it has %s twice", name)
		case value == "" && name != s.Empty:
			return nil, fmt.Errorf("its %s is empty", name)
		case Bad(value):
			return nil, fmt.Errorf("its %s has control characters, or isn't UTF-8", name)
		}
		all[name] = value
	}
	if all["key"] == "" {
		return nil, errors.New("it has no key: add ?key=KEY")
	}
	return all, nil
}

// String returns the canonical URL. If you parse it, the result is u.
func (s Syntax) String(u URL) string {
	var b strings.Builder
	b.WriteString(u.Scheme + "://")
	if u.User != "" {
		b.WriteString(url.User(u.User).String() + "@")
	}
	host := strings.ReplaceAll(u.Host, "%", "%25") // the zone of an IPv6 address
	switch {
	case u.Port != 0:
		host = net.JoinHostPort(host, strconv.Itoa(int(u.Port)))
	case strings.Contains(host, ":"):
		host = "[" + host + "]"
	}
	b.WriteString(host + "/" + url.PathEscape(u.Path))
	readable := strings.NewReplacer("%3A", ":", "%2F", "/")
	if s.Literal {
		readable = strings.NewReplacer("%3A", ":", "%2F", "/", "+", "%20")
	}
	separator := "?"
	for _, name := range s.Parameters {
		if value, set := u.Parameters[name]; set {
			b.WriteString(separator + name + "=" + readable.Replace(url.QueryEscape(value)))
			separator = "&"
		}
	}
	return b.String()
}
