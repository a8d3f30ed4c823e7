package postgres

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// PasswordVariable is the environment variable with the password. If it is unset, the password
// comes from PGPASSWORD, or else from the passfile.
const PasswordVariable = "REPOLOCK_POSTGRES_PASSWORD"

// Backend is a locking.Backend, Watcher, Connected, Inspector, Breaker and Examiner. Its methods
// can be called concurrently.
type Backend struct {
	config        *pgconn.Config
	where         string // the server in messages
	host          string // this machine
	sessionPooler bool

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	users  sync.WaitGroup // calls and sessions with a connection; Close waits for them

	mu       sync.Mutex          // guards sessions, and Close against new users
	sessions map[string]*session // by the handle's token
}

var (
	_ locking.Backend   = (*Backend)(nil)
	_ locking.Watcher   = (*Backend)(nil)
	_ locking.Connected = (*Backend)(nil)
	_ locking.Inspector = (*Backend)(nil)
	_ locking.Breaker   = (*Backend)(nil)
	_ locking.Examiner  = (*Backend)(nil)
)

// Open returns a backend for the server of a Target, without connecting to it. Credentials that the
// Target lacks come from libpq's variables PGUSER, PGPASSWORD, PGPASSFILE and PGSSL*. Open ignores
// libpq's other variables, which name servers, databases and settings. It refuses PGSERVICE, which
// can name all of them.
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

// enter returns a context that also ends with Close. Close waits until leave is called.
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
