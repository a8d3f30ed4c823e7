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

	"github.com/repolock/repolock/internal/regular"
	"github.com/repolock/repolock/locking"
	"github.com/repolock/repolock/locking/internal/server"
)

// Environment variables with the password. The first one that isn't empty counts. Without them, Open
// reads the password-file.
const (
	PasswordVariable = "REPOLOCK_REDIS_PASSWORD"
	CLIVariable      = "REDISCLI_AUTH" // redis-cli's
)

// Options describe the holder in the note beside the lock. Holder defaults to "repolock".
type Options struct {
	Holder, Version string
}

const (
	stepLimit     = 5 * time.Second // for a connection, a write, or an answer
	takedownLimit = time.Second
)

// silence keeps go-redis from writing to stderr.
var silence = sync.OnceFunc(logging.Disable)

// Open returns the backend of a server. It reads the password and the files of the Target, but makes no
// connection. Open disables the log of go-redis in this process.
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
		// A repeated SET would be refused because of the first one. The caller repeats it.
		MaxRetries: -1, DialerRetries: 1,
		DialTimeout: stepLimit, ReadTimeout: stepLimit, WriteTimeout: stepLimit, ContextTimeoutEnabled: true,
		// After PoolSize failures, go-redis doesn't dial for a second.
		PoolSize: 1000, PipelinePoolSize: -1, MaxIdleConns: 4,
		ReadBufferSize: 4096, WriteBufferSize: 4096,
	})
	return b, nil
}

// Close ends the requests under way and closes the connections. It releases no lock: held locks
// expire. Afterwards every method returns an error, except that a second Close does nothing.
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

// dialer returns a function that dials until ctx ends or Close is called. Otherwise go-redis would dial
// on after a request was given up.
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
