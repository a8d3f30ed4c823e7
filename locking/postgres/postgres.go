// Package postgres holds session-level advisory locks of PostgreSQL:
//
//	select pg_try_advisory_lock(hashtext(KEY)::bigint)
//
// Any program that takes that lock in the same database excludes this package, and this package excludes it.
//
// # The lock
//
// The lock belongs to a session of the server, so each lock has a connection of its own. The lock ends with the
// session: at Release, when our process ends, when the server ends or is restarted, and when an administrator ends the
// session. PostgreSQL has no ttl. Instead, the ttl of TryLock becomes the TCP timeout of the session at the server: the
// server frees the lock of a vanished machine soon after the ttl, and not before.
//
// Renew asks the session whether it still holds the lock. Watch notices sooner that the session has ended.
//
// hashtext has 32 bits: any two keys have the same hash, and so the same lock, with a chance of one in 4,294,967,296.
// The lock exists in one database of one server. A standby doesn't know it.
//
// # Loss
//
// A session can end while its holder runs on: the server is killed or restarted, a failover replaces it, or an
// administrator ends the session. Then the lock is free at once. Watch closes its channel as soon as the packet that
// ends the connection arrives. If the network is cut too, the holder notices the loss at its deadline, because Renew
// isn't answered.
//
// # Poolers
//
// A pooler that lends a session for a transaction (pgbouncer with pool_mode=transaction) would lend the session with
// our lock to other clients. A server announces the pid of the session when it begins; a pooler announces a number of
// its own. So TryLock returns ErrUnfit if statements run in another session than the announced one.
// Target.SessionPooler declares that the pooler lends a session until its connection ends. TryLock then refuses only if
// a second connection disproves that, and each Renew checks that the session is still the same.
package postgres

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// PasswordVariable is the environment variable with the password. If it is unset, Open uses PGPASSWORD, or else the
// passfile.
const PasswordVariable = "REPOLOCK_POSTGRES_PASSWORD"

// Backend is a locking.Backend, Watcher, Inspector, Breaker and Examiner. Its methods can be called
// concurrently.
type Backend struct {
	config        *pgconn.Config
	where         string // the server, for messages
	host          string // the name of this machine
	sessionPooler bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	users  sync.WaitGroup // calls and sessions that have a connection; Close waits for them

	mu       sync.Mutex          // guards sessions, and keeps new users from starting during Close
	sessions map[string]*session // by the handle's token
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Watcher   = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Examiner  = (*Backend)(nil)
)

// Open returns a backend for the server of a Target, without connecting to it. If the Target lacks credentials, Open
// uses libpq's variables PGUSER, PGPASSWORD, PGPASSFILE and PGSSL*. It ignores libpq's other variables, which name
// servers, databases and settings. It refuses PGSERVICE, because a service can set all of them.
func Open(t Target) (*Backend, error) {
	if os.Getenv("PGSERVICE") != "" {
		return nil, errors.New("postgres: PGSERVICE is set, and could change what the URL names: unset it")
	}
	if t.Passfile != "" {
		if _, err := os.ReadFile(t.Passfile); err != nil {
			return nil, fmt.Errorf("postgres: the passfile can't be read: %w", err)
		}
	}
	set := url.Values{"target_session_attrs": {"any"}, "connect_timeout": {"0"}, "port": {strconv.Itoa(int(t.Port))}}
	for name, value := range map[string]string{
		"host": t.Host, "dbname": t.Database, "user": t.User, "passfile": t.Passfile,
		"sslmode": t.SSLMode, "sslrootcert": t.SSLRootCert, "sslcert": t.SSLCert, "sslkey": t.SSLKey,
	} {
		if value != "" {
			set.Set(name, value)
		}
	}
	config, err := pgconn.ParseConfig("postgres://?" + strings.ReplaceAll(set.Encode(), "+", "%20"))
	if err != nil {
		cause := text.Line(err.Error())
		if parse, ok := errors.AsType[*pgconn.ParseConfigError](err); ok && errors.Unwrap(parse) != nil {
			cause = text.Line(errors.Unwrap(parse).Error())
		}
		return nil, fmt.Errorf("postgres: server %s: the URL or a PG* variable is wrong: %s", t.server(), cause)
	}
	if config.User == "" {
		return nil, fmt.Errorf("postgres: server %s: no user is known: write one into the URL", t.server())
	}
	if password := os.Getenv(PasswordVariable); password != "" {
		config.Password = password
	}
	config.RuntimeParams = make(map[string]string)
	config.DialFunc = new(net.Dialer).DialContext
	host, _ := os.Hostname()
	b := &Backend{config: config, where: t.server(), host: host, sessionPooler: t.SessionPooler, sessions: make(map[string]*session)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b, nil
}

var errClosed = errors.New("postgres: the backend is closed")

// Close ends all connections, and with them the locks.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.cancel()
	b.mu.Unlock()
	b.users.Wait()
	return nil
}

// enter returns a context that also ends with Close. Close waits until the caller calls leave.
func (b *Backend) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.ctx.Err() != nil {
		return nil, nil, errClosed
	}
	b.users.Add(1)
	ctx, cancel := context.WithCancelCause(ctx)
	stop := context.AfterFunc(b.ctx, func() { cancel(errClosed) })
	return ctx, func() {
		stop()
		cancel(nil)
		b.users.Done()
	}, nil
}

// Target is a key in one database of one server. Targets can be compared with ==.
type Target struct {
	// Host is a name, an IP address, or the directory of a Unix socket.
	Host string
	Port uint16 // also of a Unix socket
	// User is the user. "" means PGUSER, or else the system's user.
	User, Database, Key string
	// SSLMode is a value of libpq's parameter sslmode. "" means PGSSLMODE, or else "prefer". The files are libpq's
	// parameters sslrootcert, sslcert and sslkey.
	SSLMode, SSLRootCert, SSLCert, SSLKey string
	// Passfile is the file with passwords. "" means PGPASSFILE, or else ~/.pgpass.
	Passfile string
	// SessionPooler declares that there is a pooler in session mode in front of the server.
	SessionPooler bool
}

const defaultPort = 5432

// maxKey is the longest key, in bytes.
const maxKey = 512

var syntax = server.Syntax{
	Schemes: []string{"postgres", "postgresql"}, Form: "postgres://HOST/DATABASE?key=KEY",
	Secret:     "set " + PasswordVariable + " instead",
	Parameters: []string{"host", "port", "key", "passfile", "pooler", "sslcert", "sslkey", "sslmode", "sslrootcert"},
	Literal:    true,
}

// sslModes are libpq's modes, and "" for its default.
var sslModes = []string{"", "disable", "allow", "prefer", "require", "verify-ca", "verify-full"}

// Parse parses a URL:
//
//	postgres://[USER@]HOST[:PORT]/DATABASE?key=KEY
//	postgres:///DATABASE?host=/DIR&key=KEY
//
// The second form names a Unix socket. The number in the socket's name is 5432, unless the URL has port=PORT. Other
// parameters are sslmode, sslrootcert, sslcert, sslkey, passfile and pooler=session. The scheme can also be postgresql.
// A plus sign means itself. Parse reads no file and makes no connection. Its error quotes nothing that could be a
// password.
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

// String returns the canonical URL, without credentials. If you parse it, the result is t.
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

// server returns the address of the server and the database, for messages.
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
