package postgres

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"unicode"

	"github.com/repolock/repolock/internal/port"
)

// sslModes are those of libpq.
var sslModes = []string{"disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// parameters reads the query. Each parameter can be there once, with a value.
func (t *Target) parameters(query string) error {
	seen := make(map[string]bool)
	for pair := range strings.SplitSeq(query, "&") {
		name, escaped, _ := strings.Cut(pair, "=")
		value, err := url.PathUnescape(escaped)
		switch {
		case pair == "" && query == "":
			continue
		case err != nil:
			return invalid("a percent sign isn't followed by two hexadecimal digits; %%25 is one in a value")
		case seen[name]:
			return invalid("a parameter is there twice")
		}
		if err := t.set(name, value); err != nil {
			return err
		}
		seen[name] = true
		if value == "" {
			return invalid("%s is empty", name) // set knows the name
		}
	}
	if t.Key == "" {
		return invalid("it needs a key: ?key=KEY")
	}
	if err := checkKey(t.Key); err != nil {
		return err
	}
	if t.Host != "" && t.Port == 0 {
		t.Port = defaultPort
	}
	return nil
}

func (t *Target) set(name, value string) error {
	switch name {
	case "key":
		t.Key = value
	case "host":
		t.Host = value
		if !t.socket() {
			return invalid("host is the absolute path of a socket's directory; write another host behind //")
		}
		if strings.Contains(value, ",") {
			return invalid("it must name exactly one host")
		}
	case "port":
		return t.setPort(port.Parse(value))
	case "sslmode":
		t.SSLMode = value
		if !slices.Contains(sslModes, value) {
			return invalid("sslmode must be one of %s", strings.Join(sslModes, ", "))
		}
	case "sslrootcert":
		t.SSLRootCert = value
	case "sslcert":
		t.SSLCert = value
	case "sslkey":
		t.SSLKey = value
	case "passfile":
		t.Passfile = value
	case "pooler":
		t.SessionPooler = true
		if value != "session" {
			return invalid("pooler can only be session: no other mode keeps a lock")
		}
	case "password", "sslpassword":
		return invalid("it has a password, which all processes can see: set %s instead", PasswordVariable)
	default:
		// It isn't quoted, because it can be a part of a password.
		return invalid("it has an unknown parameter (known: key, host, port, passfile, pooler, " +
			"sslcert, sslkey, sslmode, sslrootcert)")
	}
	return nil
}

// escape writes a value of a parameter, so that a path stays readable.
func escape(value string) string {
	return strings.NewReplacer("+", "%20", "%2F", "/", "%3A", ":").Replace(url.QueryEscape(value))
}

func control(r rune) bool { return unicode.IsControl(r) || r == unicode.ReplacementChar }

// ErrURL is returned for a URL that isn't understood.
var ErrURL = errors.New("no URL of a lock in PostgreSQL")

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrURL}, args...)...)
}
