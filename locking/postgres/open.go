package postgres

import (
	"cmp"
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

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/text"
	"github.com/repolock/repolock/locking"
)

// PasswordVariable names the variable with the password. If it isn't set, PGPASSWORD is
// taken, then the passfile.
const PasswordVariable = "REPOLOCK_POSTGRES_PASSWORD"

// Options has what other programs read about the holder, in pg_stat_activity.
type Options struct {
	// Holder names the program, "repolock" if it is empty; Host and PID are this machine's
	// name and this process if they are empty.
	Holder, Host string
	PID          int
	// SessionPooler is as in Target, for New.
	SessionPooler bool
	// Clock is the machine's if it is nil. Only Examine and Break read it.
	Clock locking.Clock
}

// Backend is a locking.Backend, Watcher, Connected, Inspector, Breaker and Examiner. Its methods
// can be called concurrently.
type Backend struct {
	config  *pgconn.Config
	where   string
	options Options

	ctx    context.Context // ends with Close
	cancel context.CancelFunc
	users  sync.WaitGroup // of connections

	mu       sync.Mutex
	closed   bool
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

// Open returns a backend for the server of a Target. It makes no connection. It reads the
// credentials from the environment and from files. Of libpq's variables, PGUSER, PGPASSWORD,
// PGPASSFILE and those of TLS are heeded if the Target doesn't say otherwise. Those that name
// another server, database or setting are not; Open refuses PGSERVICE, which could.
func Open(t Target, o Options) (*Backend, error) {
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
		return nil, fmt.Errorf("postgres: server %s: can't be set up from the URL and the PG* variables: %s",
			t.server(), cause)
	}
	if config.User == "" {
		return nil, fmt.Errorf("postgres: server %s: no user is known: write one into the URL", t.server())
	}
	if password := os.Getenv(PasswordVariable); password != "" {
		config.Password = password
	}
	config.RuntimeParams = make(map[string]string)
	config.DialFunc = new(net.Dialer).DialContext
	o.SessionPooler = t.SessionPooler
	return New(config, o), nil
}

// New returns a backend that connects as a configuration of pgconn says: that of a pgxpool.Pool is
// &pool.Config().ConnConfig.Config. It makes connections of its own, one for each lock. It changes
// application_name and client_encoding in a copy. The configuration must name one server.
func New(config *pgconn.Config, o Options) *Backend {
	host, _ := os.Hostname()
	o.Holder, o.Host, o.PID = cmp.Or(o.Holder, "repolock"), cmp.Or(o.Host, host), cmp.Or(o.PID, os.Getpid())
	o.Clock = cmp.Or[locking.Clock](o.Clock, clock.System{})
	t := Target{Host: config.Host, Port: config.Port, Database: config.Database}
	b := &Backend{config: config.Copy(), where: t.server(), options: o, sessions: make(map[string]*session)}
	b.ctx, b.cancel = context.WithCancel(context.Background())
	return b
}

// errClosed is returned after Close.
var errClosed = errors.New("postgres: the backend is closed")

// Close ends all connections. A lock that is held ends with its connection.
func (b *Backend) Close() error {
	b.mu.Lock()
	b.closed = true
	b.mu.Unlock()
	b.cancel()
	b.users.Wait()
	return nil
}

// enter bounds a context by Close, which waits for leave.
func (b *Backend) enter(ctx context.Context) (_ context.Context, leave func(), err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
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
