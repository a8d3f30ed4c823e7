package redis

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	goredis "github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"
	"github.com/redis/go-redis/v9/maintnotifications"

	"github.com/repolock/repolock/internal/clock"
	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// Environment variables that have the password. The first one that isn't empty counts, and a
// password-file only if both are empty.
const (
	PasswordVariable = "REPOLOCK_REDIS_PASSWORD"
	CLIVariable      = "REDISCLI_AUTH" // of redis-cli
)

// Options of a Backend. The zero value suits most programs.
type Options struct {
	// Holder, Host, PID and Version describe the holder in the note beside the lock. Holder is
	// "repolock" if it is empty, Host and PID are this machine's and this process'.
	Holder, Host, Version string
	PID                   int
	// Clock dates the notes; the machine's if it is nil.
	Clock locking.Clock
	// Getenv reads the password for Open; os.Getenv if it is nil.
	Getenv func(string) string
}

// Limits of what no shorter context bounds.
const (
	stepLimit     = 5 * time.Second // of a connection, a write, an answer
	takedownLimit = time.Second     // of a takedown
)

// silence keeps go-redis from writing to stderr.
var silence = sync.OnceFunc(logging.Disable)

// Open returns the backend of a server. It reads the password and the files of the Target, and
// makes no connection: the first method that needs one does. Open disables the log of go-redis
// in this process. Close closes the connections.
func Open(t Target, o Options) (*Backend, error) {
	if err := checkName(t.Prefix + t.Key); err != nil {
		return nil, err
	}
	password, err := password(t, o)
	if err != nil {
		return nil, err
	}
	security, err := security(t)
	if err != nil {
		return nil, err
	}
	silence()
	b := newBackend(t.Prefix, "redis at "+t.server(), o)
	b.password, b.owned = password, true
	b.client = goredis.NewClient(&goredis.Options{
		Addr:     net.JoinHostPort(t.Host, strconv.Itoa(t.Port)),
		Username: t.User, Password: password, DB: t.DB,
		Dialer:   b.dialer(security),
		Protocol: 2, DisableIdentity: true,
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
		// A repeated SET would take its own lock for another holder's, and the caller repeats.
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: stepLimit, ReadTimeout: stepLimit, WriteTimeout: stepLimit, ContextTimeoutEnabled: true,
		// go-redis stops dialing for a second after as many failures as PoolSize.
		PoolSize: 1000, PipelinePoolSize: -1, MaxIdleConns: 4,
		ReadBufferSize: 4096, WriteBufferSize: 4096,
	})
	return b, nil
}

// New returns a backend that uses a client, or a pool or cluster client, of the caller, who closes
// it after the Backend. The client should have ContextTimeoutEnabled: otherwise a request can go
// on in the background after its context has ended. Its retries do no harm. prefix is in front of
// all keys; DefaultPrefix is that of other programs.
func New(client goredis.UniversalClient, prefix string, o Options) *Backend {
	b := newBackend(prefix, "redis", o)
	b.client = client
	return b
}

func newBackend(prefix, server string, o Options) *Backend {
	host, _ := os.Hostname() // for people
	o.Holder, o.Host, o.PID = cmp.Or(o.Holder, "repolock"), cmp.Or(o.Host, host), cmp.Or(o.PID, os.Getpid())
	o.Clock = cmp.Or[locking.Clock](o.Clock, clock.System{})
	b := &Backend{prefix: prefix, server: server, opts: o, takedownLimit: takedownLimit}
	b.life, b.end = context.WithCancel(context.Background())
	return b
}

// Close ends what is under way and closes the connections. It releases no lock: a held lock
// expires. Methods return an error afterwards. A second Close does nothing.
func (b *Backend) Close() error {
	b.mu.Lock()
	first := !b.closed
	b.closed = true
	b.mu.Unlock()
	b.end()
	if !first || !b.owned {
		return nil
	}
	err := b.client.Close()
	b.calls.Wait()
	return err
}

// dialer connects with the context of the request and the life of the Backend, because go-redis
// goes on dialing for a request that was given up.
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

func password(t Target, o Options) (string, error) {
	getenv := o.Getenv
	if getenv == nil {
		getenv = os.Getenv
	}
	p := cmp.Or(getenv(PasswordVariable), getenv(CLIVariable))
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
		return "", fmt.Errorf("redis: the password-file %s must have one line, the password", t.PasswordFile)
	}
	return p, nil
}

// security returns nil without TLS.
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
