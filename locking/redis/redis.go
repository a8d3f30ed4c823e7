// Package redis keeps locks in one Redis server. They have the form of Redis' page about Redlock, which many programs
// use. So these programs and repolock exclude each other.
//
// # The form
//
//   - A lock is the key PREFIX+KEY. Its value is the holder's token, and nothing else.
//   - SET key token NX PX ttl acquires it.
//   - A script that compares the token and calls PEXPIRE renews it.
//   - A script that compares the token and calls DEL releases it.
//
// The ttl is in whole milliseconds, rounded up. The server's clock counts it.
//
// # The note
//
// The value is the token alone, so the holder's name is in a note at the key repolock:holder:PREFIX+KEY. A script
// writes it, in the same packet as SET and each renewal, if the key of the lock has the token. The note has the ttl of
// the lock and a hash of the token, by which Inspect recognizes the note of an earlier lock. The lock doesn't depend on
// the note. The backend ignores its errors, and writes no more notes after a refusal.
//
// # Lost answers
//
// If SET isn't answered, TryLock looks for its token. If the token is there, the lock is acquired. Otherwise TryLock
// removes the lock that SET might have stored, or might store later, for at most a second after its context has ended.
// If the server doesn't answer that either, the lock expires, and the error says so. A stopped server can execute SET
// later. The next TryLock of the same Backend recognizes that token, and removes the lock.
//
// # Limits
//
// The server grants a lock twice if it forgets the first one: by a restart without persistence, a failover to a replica
// that hasn't received it, or an eviction. The first holder notices that at its next renewal. Examine finds settings
// that make this possible. Redlock, the lock on a majority of several servers, isn't implemented.
package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// The environment variables for the password. The first one that isn't empty counts. If both are empty, Open reads the
// password file.
const (
	PasswordVariable = "REPOLOCK_REDIS_PASSWORD"
	CLIVariable      = "REDISCLI_AUTH" // redis-cli's own variable
)

// Options describe the holder in the note about the lock.
type Options struct {
	Holder  string // the program; "" means "repolock"
	Version string // the program's version
}

const (
	stepLimit     = 5 * time.Second // bounds making a connection, a write, or the wait for an answer
	takedownLimit = time.Second
)

// silence keeps go-redis from writing to stderr.
var silence = sync.OnceFunc(logging.Disable)

// Open returns the backend of a server. It reads the password and the files of the Target, but makes no connection.
// Open disables the log of go-redis in this process.
func Open(t Target, o Options) (*Backend, error) {
	if err := checkName(t.Prefix + t.Key); err != nil {
		return nil, err
	}
	password, err := password(t)
	if err != nil {
		return nil, err
	}
	security, err := security(t)
	if err != nil {
		return nil, err
	}
	silence()
	o.Holder = cmp.Or(o.Holder, "repolock")
	b := &Backend{prefix: t.Prefix, server: "redis at " + t.server(), password: password, opts: o, takedownLimit: takedownLimit}
	b.life, b.end = context.WithCancel(context.Background())
	b.client = goredis.NewClient(&goredis.Options{
		Addr:     net.JoinHostPort(t.Host, strconv.Itoa(t.Port)),
		Username: t.User, Password: password, DB: t.DB,
		Dialer:   b.dialer(security),
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// The client must not repeat a SET, because the server would refuse the second one. The caller repeats it.
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: stepLimit, ReadTimeout: stepLimit, WriteTimeout: stepLimit, ContextTimeoutEnabled: true,
		// After PoolSize failures, go-redis opens no connection for a second.
		PoolSize: 1000, PipelinePoolSize: -1, MaxIdleConns: 4,
		ReadBufferSize: 4096, WriteBufferSize: 4096,
	})
	return b, nil
}

// Close ends the running requests and closes the connections. It releases no lock: held locks expire. After Close every
// method returns an error, except that a second Close does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := b.life.Err() == nil
	b.end()
	b.mu.Unlock()
	if !first {
		return nil
	}
	err := b.client.Close()
	b.calls.Wait()
	return err
}

// dialer returns a function that opens a connection until ctx ends or Close is called. Without it, go-redis would
// continue after a request has ended.
func (b *Backend) dialer(security *tls.Config) func(ctx context.Context, network, address string) (net.Conn, error) {
	return func(ctx context.Context, network, address string) (net.Conn, error) {
		ctx, cancel := context.WithCancel(ctx)
		defer cancel()
		defer context.AfterFunc(b.life, cancel)()
		plain, err := new(net.Dialer).DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		heard := server.Conn{Conn: plain, Heard: &b.heard}
		if security == nil {
			return heard, nil
		}
		secure := tls.Client(heard, security)
		if err := secure.HandshakeContext(ctx); err != nil {
			plain.Close()
			return nil, &net.OpError{Op: "dial", Net: network, Addr: plain.RemoteAddr(), Err: err}
		}
		return secure, nil
	}
}

func password(t Target) (string, error) {
	p := cmp.Or(os.Getenv(PasswordVariable), os.Getenv(CLIVariable))
	switch {
	case p != "" || t.PasswordFile == "" && t.User == "":
		return p, nil
	case t.PasswordFile == "":
		return "", fmt.Errorf("%w: the redis user %q has no password: set %s, or use password-file",
			locking.ErrPermission, t.User, PasswordVariable)
	}
	body, err := readFile(t.PasswordFile)
	if err != nil {
		return "", fmt.Errorf("redis: the password-file can't be read: %w", err)
	}
	p = strings.TrimSuffix(strings.TrimSuffix(string(body), "\n"), "\r")
	if p == "" || server.Bad(p) {
		return "", fmt.Errorf("redis: the password-file %s must have only one line, the password", t.PasswordFile)
	}
	return p, nil
}

// security returns the configuration of TLS, or nil for redis://.
func security(t Target) (*tls.Config, error) {
	if !t.TLS {
		return nil, nil
	}
	c := &tls.Config{ServerName: t.Host, MinVersion: tls.VersionTLS12}
	if t.CA == "" {
		return c, nil
	}
	body, err := readFile(t.CA)
	if err != nil {
		return nil, fmt.Errorf("redis: the ca file can't be read: %w", err)
	}
	c.RootCAs = x509.NewCertPool()
	if !c.RootCAs.AppendCertsFromPEM(body) {
		return nil, fmt.Errorf("redis: the ca file %s has no certificate in PEM", t.CA)
	}
	return c, nil
}

// readFile reads a small regular file.
func readFile(path string) ([]byte, error) {
	const most = 1 << 20
	f, err := regular.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	body, err := io.ReadAll(io.LimitReader(f, most+1))
	if err == nil && len(body) > most {
		err = errors.New(path + " is larger than 1 MiB")
	}
	return body, err
}

// DefaultPrefix is the prefix if a URL has none.
const DefaultPrefix = "bext:lock:"

const defaultPort = 6379

// Target is a lock that a URL names:
//
//	redis://[user@]HOST[:PORT][/DB]?key=KEY[&prefix=PREFIX][&password-file=FILE]
//	rediss://…[&ca=FILE]
//
// Targets from Parse are canonical, and can be compared with ==.
type Target struct {
	// TLS is set for the scheme rediss.
	TLS bool
	// User is the ACL user. "" means the server's default user.
	User string
	// Host is a name in lower case or an address without brackets.
	Host string
	Port int
	DB   int // number of the database
	// Prefix and Key, joined, are the lock's key in Redis.
	Key, Prefix string
	// PasswordFile and CA are paths of files, or "".
	PasswordFile, CA string
}

var syntax = server.Syntax{
	Schemes: []string{"redis", "rediss"}, Form: "redis://HOST:PORT/DB?key=KEY",
	Secret:     "set " + PasswordVariable + ", or use password-file",
	Parameters: []string{"key", "prefix", "password-file", "ca"}, Empty: "prefix",
}

// Parse parses a URL. It opens no file and no connection. It refuses unknown parameters, and a password, because every
// user could read it in the list of processes. The error quotes no part of the URL.
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

// String returns the canonical URL, without credentials. If you parse it, the result is t.
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

// Identity returns the same string for all Targets of one lock, even if their users, files and schemes differ. If two
// Targets name one server differently, their Identities differ.
func (t Target) Identity() string {
	return fmt.Sprintf("redis %s %q", t.server(), t.Prefix+t.Key)
}

// server returns the address of the server and the database, for messages.
func (t Target) server() string {
	return fmt.Sprintf("%s/%d", net.JoinHostPort(t.Host, strconv.Itoa(t.Port)), t.DB)
}
