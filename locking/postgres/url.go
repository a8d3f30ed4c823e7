package postgres

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// Target is a key in one database of one server. Targets can be compared with ==.
type Target struct {
	// Host is a name, an IP address, or the directory of a Unix socket.
	Host string
	Port uint16
	// User defaults to PGUSER, and then to the system's user.
	User, Database, Key string
	// SSLMode is a value of libpq's parameter sslmode. It defaults to PGSSLMODE, and then to
	// "prefer". The files are libpq's parameters sslrootcert, sslcert and sslkey.
	SSLMode, SSLRootCert, SSLCert, SSLKey string
	// Passfile defaults to PGPASSFILE, and then to ~/.pgpass.
	Passfile string
	// SessionPooler declares that a pooler in session mode is between us and the server.
	SessionPooler bool
}

const defaultPort = 5432

// maxKey is the largest length of a key in bytes.
const maxKey = 512

var syntax = server.Syntax{
	Schemes: []string{"postgres", "postgresql"}, Form: "postgres://HOST/DATABASE?key=KEY",
	Secret:     "set " + PasswordVariable + " instead",
	Parameters: []string{"host", "port", "key", "passfile", "pooler", "sslcert", "sslkey", "sslmode", "sslrootcert"},
	Literal:    true,
}

// sslModes are libpq's, and "" for its default.
var sslModes = []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// Parse parses a URL:
//
//	postgres://[USER@]HOST[:PORT]/DATABASE?key=KEY
//	postgres:///DATABASE?host=/DIR&key=KEY
//
// The second form names a Unix socket. The port of its name is 5432 unless port=PORT is there. Other
// parameters are sslmode, sslrootcert, sslcert, sslkey, passfile and pooler=session. The scheme can
// also be postgresql. A plus sign stands for itself. Parse reads no file and makes no connection. Its
// error quotes nothing that could be a password.
func Parse(raw string) (Target, error) {
	t, err := parse(raw)
	if err == nil {
		err = checkKey(t.Key)
	} else {
		err = fmt.Errorf("postgres URL: %w", err)
	}
	if err != nil {
		return Target{}, err
	}
	return t, nil
}

func parse(raw string) (t Target, err error) {
	u, err := syntax.Parse(raw)
	if err != nil {
		return t, err
	}
	p := u.Parameters
	t = Target{
		Host: cmp.Or(p["host"], u.Host), Port: cmp.Or(u.Port, defaultPort), User: u.User, Database: u.Path, Key: p["key"],
		SSLMode: p["sslmode"], SSLRootCert: p["sslrootcert"], SSLCert: p["sslcert"], SSLKey: p["sslkey"],
		Passfile: p["passfile"], SessionPooler: p["pooler"] != "",
	}
	if p["port"] != "" {
		t.Port, err = port.Parse(p["port"])
	}
	switch {
	case err != nil:
		return t, err
	case t.Database == "":
		return t, errors.New("it has no database: write " + syntax.Form)
	case p["host"] == "" && p["port"] != "":
		return t, errors.New("port is for sockets (host=/DIR): write HOST:PORT")
	case p["host"] != "" && (u.Host != "" || u.Port != 0):
		return t, errors.New("host=/DIR is a Unix socket: only a user can be between // and the next slash")
	case p["host"] != "" && !t.socket():
		return t, errors.New("host must be the absolute path of a socket's directory: write any other host after //")
	case t.Host == "" || strings.Contains(t.Host, ","):
		return t, errors.New("it must have exactly one host")
	case !slices.Contains(sslModes, t.SSLMode):
		return t, errors.New("sslmode must be one of " + strings.Join(sslModes[1:], ", "))
	case t.SessionPooler && p["pooler"] != "session":
		return t, errors.New("pooler can only be session: no other mode keeps a lock")
	}
	return t, nil
}

// String returns the canonical URL, without credentials. Parse returns t for it.
func (t Target) String() string {
	u := server.URL{Scheme: "postgres", User: t.User, Host: t.Host, Path: t.Database, Parameters: map[string]string{
		"key": t.Key, "passfile": t.Passfile, "sslcert": t.SSLCert, "sslkey": t.SSLKey, "sslmode": t.SSLMode,
		"sslrootcert": t.SSLRootCert,
	}}
	if t.Port != defaultPort {
		u.Port = t.Port
	}
	if t.SessionPooler {
		u.Parameters["pooler"] = "session"
	}
	if t.socket() {
		u.Parameters["host"], u.Host = t.Host, ""
		if u.Port != 0 {
			u.Parameters["port"], u.Port = strconv.Itoa(int(t.Port)), 0
		}
	}
	maps.DeleteFunc(u.Parameters, func(_, value string) bool { return value == "" })
	return syntax.String(u)
}

// server returns the server and the database, for messages.
func (t Target) server() string {
	address := net.JoinHostPort(t.Host, strconv.Itoa(int(t.Port)))
	if t.socket() {
		address = t.Host + "/.s.PGSQL." + strconv.Itoa(int(t.Port))
	}
	return address + ", database " + strconv.Quote(t.Database)
}

// socket reports whether the host is the directory of a Unix socket.
func (t Target) socket() bool { return strings.HasPrefix(t.Host, "/") }

// checkKey returns an ErrKey unless hashtext accepts the key.
func checkKey(key string) error {
	why := ""
	switch {
	case key == "":
		why = "it is empty"
	case len(key) > maxKey:
		why = fmt.Sprintf("it has %d bytes, more than %d", len(key), maxKey)
	case strings.ContainsRune(key, 0):
		why = "it has a NUL byte"
	case strings.ToValidUTF8(key, "") != key:
		why = "it isn't UTF-8"
	default:
		return nil
	}
	return fault.New(locking.ErrKey, "postgres: the key is invalid: %s", why)
}
