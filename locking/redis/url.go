package redis

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"net"
	"strconv"
	"strings"

	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// DefaultPrefix is the prefix of a URL without one.
const DefaultPrefix = "bext:lock:"

const defaultPort = 6379

// Target is a lock that a URL names:
//
//	redis://[user@]HOST[:PORT][/DB]?key=KEY[&prefix=PREFIX][&password-file=FILE]
//	rediss://…[&ca=FILE]
//
// Targets from Parse are canonical, and can be compared with ==.
type Target struct {
	// TLS is set for rediss.
	TLS bool
	// User is the ACL user. It defaults to the server's default user.
	User string
	// Host is a name in lower case or an address without brackets.
	Host string
	Port int
	DB   int
	// Prefix+Key is the lock's key in Redis.
	Key, Prefix string
	// PasswordFile and CA are paths of files, or "".
	PasswordFile, CA string
}

var syntax = server.Syntax{
	Schemes: []string{"redis", "rediss"}, Form: "redis://HOST:PORT/DB?key=KEY",
	Secret:     "set " + PasswordVariable + ", or use password-file",
	Parameters: []string{"key", "prefix", "password-file", "ca"}, Empty: "prefix",
}

// Parse reads a URL. It opens no file and no connection. It refuses unknown parameters, and a password,
// which every user could read in the list of processes. The error quotes no part of the URL.
func Parse(raw string) (Target, error) {
	t, err := parse(raw)
	if err != nil {
		return Target{}, fmt.Errorf("redis URL: %w", err)
	}
	return t, nil
}

func parse(raw string) (Target, error) {
	u, err := syntax.Parse(raw)
	if err != nil {
		return Target{}, err
	}
	prefix, set := u.Parameters["prefix"]
	if !set {
		prefix = DefaultPrefix
	}
	t := Target{
		TLS: u.Scheme == "rediss", User: u.User, Host: u.Host, Port: cmp.Or(int(u.Port), defaultPort), Key: u.Parameters["key"],
		Prefix: prefix, PasswordFile: u.Parameters["password-file"], CA: u.Parameters["ca"],
	}
	t.DB, err = strconv.Atoi(cmp.Or(u.Path, "0"))
	switch {
	case t.Host == "":
		return t, errors.New("it must have exactly one host")
	case strings.ContainsAny(t.User, "@:/ "):
		return t, errors.New("the user before @ has one of the characters @, :, / or a space")
	case err != nil || t.DB < 0 || t.DB > 1<<20 || u.Path != "" && strconv.Itoa(t.DB) != u.Path:
		return t, errors.New("its path must be the number of a database: /0")
	case t.CA != "" && !t.TLS:
		return t, errors.New("ca needs TLS: use rediss")
	}
	return t, checkName(t.Prefix + t.Key)
}

// maxName is the largest length of prefix and key together, in bytes.
const maxName = 512

// checkName returns an ErrKey unless a lock can have this key in Redis.
func checkName(name string) error {
	switch {
	case len(name) > maxName:
		return fmt.Errorf("%w: prefix and key have %d bytes, more than %d", locking.ErrKey, len(name), maxName)
	case server.Bad(name):
		return fmt.Errorf("%w: %q has control characters, or isn't UTF-8", locking.ErrKey, name)
	case strings.HasPrefix(name, notePrefix):
		return fmt.Errorf("%w: %q begins with %s, the prefix of notes: use another prefix", locking.ErrKey, name, notePrefix)
	}
	return nil
}

// String returns the canonical URL, without credentials. Parse returns t for it.
func (t Target) String() string {
	u := server.URL{Scheme: "redis", User: t.User, Host: t.Host, Port: uint16(t.Port), Path: strconv.Itoa(t.DB)}
	if t.TLS {
		u.Scheme = "rediss"
	}
	u.Parameters = map[string]string{"key": t.Key, "password-file": t.PasswordFile, "ca": t.CA}
	maps.DeleteFunc(u.Parameters, func(_, value string) bool { return value == "" })
	if t.Prefix != DefaultPrefix {
		u.Parameters["prefix"] = t.Prefix
	}
	return syntax.String(u)
}

// Identity returns a string that is the same for two Targets of one lock, even if their users, files and
// schemes differ. Two names of one server have different Identities.
func (t Target) Identity() string {
	return fmt.Sprintf("redis %s %q", t.server(), t.Prefix+t.Key)
}

// server returns the server and the database, for messages.
func (t Target) server() string {
	return fmt.Sprintf("%s/%d", net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.DB)
}
