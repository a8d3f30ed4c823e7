package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/internal/port"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// Store is a store in a directory of an SFTP server. Its methods can be called concurrently.
type Store struct {
	dial func(context.Context) (*conn, error)

	mu       sync.Mutex
	dialed   *dialing // the last attempt to open a connection
	answered atomic.Bool
	declared func() store.Properties

	made sync.Map // the directories that this Store has made, by key
	old  sync.Map // paths of temporary files that dead processes left
}

var (
	_ store.Store        = (*Store)(nil)
	_ store.BatchDeleter = (*Store)(nil)
	_ store.Describer    = (*Store)(nil)
)

// Check returns the store.ErrURL that Open would return for a URL, or nil.
func Check(u *url.URL) error {
	_, err := parse(u)
	return err
}

// Open returns the store of a URL, sftp://USER@HOST:PORT/PATH. It starts ssh, and doesn't wait for a connection. It
// returns store.ErrURL if the URL can't be used.
func Open(ctx context.Context, u *url.URL) (*Store, error) {
	t, err := parse(u)
	if err != nil {
		return nil, err
	}
	return opened(func(ctx context.Context) (*conn, error) { return connect(ctx, t) }), nil
}

func opened(dial func(context.Context) (*conn, error)) *Store {
	s := &Store{dial: dial}
	s.declared = sync.OnceValue(s.declare)
	s.connecting()
	return s
}

// Close ends the connection, or the attempt to open one. A request after Close opens another one.
func (s *Store) Close() error {
	s.mu.Lock()
	d := s.dialed
	s.mu.Unlock()
	d.cancel()
	<-d.over
	if d.conn != nil {
		d.conn.Close()
	}
	return nil
}

// target is a parsed URL.
type target struct {
	command []string // a command that speaks SFTP on its stdin and stdout
	root    string   // the repository's path on the server
	fresh   bool     // the user vouches for the server's listings: see late.go
}

// parse parses a URL. A path is relative to the directory in which the server starts, which is the
// user's home with OpenSSH. After a second slash the path is absolute.
func parse(u *url.URL) (target, error) {
	bad := func(format string, args ...any) (target, error) {
		return target{}, fmt.Errorf("%w: sftp: %s", store.ErrURL, fmt.Sprintf(format, args...))
	}
	host, user := u.Hostname(), u.User.Username()
	options, err := url.ParseQuery(strings.ReplaceAll(u.RawQuery, ";", "%3B")) // a command can have one
	_, wrongPort := port.Of(u)
	root := strings.TrimPrefix(u.Path, "/")
	if root != "/" {
		root = strings.TrimSuffix(root, "/")
	}
	switch {
	case host == "" || strings.HasPrefix(host, "-") || strings.HasPrefix(user, "-"):
		return bad("a host or a user is missing, or begins with -")
	case strings.ContainsFunc(host+user, func(r rune) bool { return r <= ' ' || r == 0x7f }):
		return bad("the host or the user has a space or a control character")
	case err != nil || strings.ContainsRune(u.Path, 0):
		return bad("it isn't a URL")
	case wrongPort != nil:
		return bad("%v", wrongPort)
	case root == "":
		return bad("there is no path: sftp://HOST/PATH is relative to the home directory, sftp://HOST//PATH is absolute, sftp://HOST/. is the home directory itself")
	case strings.HasPrefix(root, "~"):
		return bad("the server knows no ~: a path after one slash is relative to the home directory")
	}
	t := target{command: sshTo(host, user, u.Port()), root: root}
	for name, values := range options {
		switch value := strings.TrimSpace(values[0]); {
		case name == "command" && len(values) == 1 && value != "":
			t.command = []string{"sh", "-c", "exec " + values[0]}
		case name == "listings" && len(values) == 1 && value == "fresh":
			t.fresh = true
		default:
			return bad("its options are command= with a value, and listings=fresh, each once")
		}
	}
	return t, nil
}

// Properties waits until the first connection is open or has failed, because only the server shows whether it can honour
// If-None-Match. The first Put with the condition tries the server's hard links out before it relies on them. If they
// fail, If-None-Match is unsupported for as long as the connection lasts.
func (s *Store) Properties() store.Properties {
	p := s.declared()
	s.mu.Lock()
	d := s.dialed
	s.mu.Unlock()
	if d.ready() && d.conn != nil && !d.conn.makesLinks() {
		p.IfAbsent = store.Unsupported
	}
	return p
}

func (s *Store) declare() store.Properties {
	p := store.Properties{Name: "sftp", IfAbsent: store.Claimed, StoreClock: true}
	d := s.connecting()
	<-d.over
	if d.conn != nil {
		p.IfAbsent = store.Kept
	}
	return p
}

// Answered reports whether the server has answered: a connection was open at least once.
func (s *Store) Answered() bool { return s.answered.Load() }

// begin checks a method's context and key, and returns the connection.
func (s *Store) begin(ctx context.Context, key string) (*conn, error) {
	if err := cmp.Or(files.CheckKey(key), tooLong(key)); err != nil {
		return nil, err
	}
	return s.connected(ctx)
}

// ready returns a connection whose root was seen.
func (s *Store) ready(ctx context.Context) (*conn, error) {
	c, err := s.connected(ctx)
	if err == nil {
		err = c.examine(ctx)
	}
	return c, err
}

// failed returns the error of a method, or nil. It adds the class of the server's status.
func failed(op, key string, err error) error {
	switch {
	case err == nil:
		return nil
	case fault.Of(err) != fault.Unknown, fault.Permanent(err):
	case errors.Is(err, sftpwire.PermissionDenied):
		err = fault.As(store.ErrPermission, err)
	case errors.Is(err, sftpwire.OpUnsupported):
		err = fault.As(store.ErrConfig, err)
	}
	return &store.Error{Op: op, Key: key, Err: err}
}
