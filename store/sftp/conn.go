package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// dialTimeout bounds the time until a connection can be used. A handshake takes about thirteen round trips.
const dialTimeout = 30 * time.Second

// dialing is an attempt to open a connection. When it is over, it has the connection or an error.
type dialing struct {
	over   chan struct{} // closed when conn and err are set
	conn   *conn         // nil after a failure
	err    error
	cancel context.CancelFunc
}

// ready reports whether the attempt is over.
func (d *dialing) ready() bool {
	select {
	case <-d.over:
		return true
	default:
		return false
	}
}

// connecting returns the present connection attempt, or begins another one. It doesn't return a connection that has
// ended or couldn't be opened. All requests that come meanwhile share the new connection. The attempt has its own
// timeout, because a handshake can take longer than a request.
func (s *Store) connecting() *dialing {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.dialed; d != nil && (!d.ready() || d.err == nil && d.conn.Err() == nil) {
		return d
	}
	ctx, cancel := context.WithTimeout(context.Background(), dialTimeout)
	d := &dialing{over: make(chan struct{}), cancel: cancel}
	s.dialed = d
	go func() {
		defer close(d.over)
		defer cancel()
		c, err := s.dial(ctx)
		if c != nil {
			s.answered.Store(true)
		}
		if d.err = err; err == nil {
			d.conn = c
		}
	}()
	return d
}

// connected waits for a connection. If it returns an error, nothing was sent.
func (s *Store) connected(ctx context.Context) (*conn, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	d := s.connecting()
	select {
	case <-d.over:
		return d.conn, d.err
	case <-ctx.Done():
		err := fault.While("connecting by ssh", ctx.Err())
		if errors.Is(err, context.DeadlineExceeded) {
			err = store.Unreachable(err)
		}
		return nil, err
	}
}

// conn is one connection to the server.
type conn struct {
	*sftpwire.Client
	pipe *pipe
	why  reason
	root string // path of the repository, without a slash at its end; "" for "/"

	server string // the program on the server, if it might show other machines' files late; else ""

	fileMode, dirMode uint32
	clock             string       // handle of a file whose mod time shows the server's time, or ""
	ticks             atomic.Int64 // number of bytes written into it
	linkless          atomic.Bool  // the server has made no hard link, whatever it answered
}

// reason is a function that returns why a connection has ended, or nil if that is unknown.
type reason func(context.Context) error

// pipe is a connection that knows how long the server has been silent.
type pipe struct {
	io.ReadWriteCloser
	asked atomic.Pointer[time.Time] // when the first request since the last received byte was sent; nil if none was
}

func (p *pipe) Read(b []byte) (int, error) {
	n, err := p.ReadWriteCloser.Read(b)
	p.asked.Store(nil)
	return n, err
}

// maxSilence is how long a server can be silent. If it has been silent for longer when a request times out, the
// connection is closed. A shorter silence shows nothing, because a request can begin just before its time is over.
const maxSilence = time.Second

func (p *pipe) silent() bool {
	asked := p.asked.Load()
	return asked != nil && time.Since(*asked) >= maxSilence
}

// start starts SFTP on a pair of pipes, and looks at the repository. It also makes a file that shows the server's time,
// and removes its name at once. The file lasts until the connection ends.
//
// If start fails after the server has begun SFTP, it returns the closed conn with the error, because the server was
// reached.
func start(ctx context.Context, rw io.ReadWriteCloser, t target, why reason) (*conn, error) {
	p, root := &pipe{ReadWriteCloser: rw}, t.root
	client, err := sftpwire.New(ctx, p)
	c := &conn{Client: client, pipe: p, why: why, root: strings.TrimSuffix(root, "/")}
	if err != nil {
		return nil, c.ended(ctx, err)
	}
	temp := c.temp("")
	look, space := sftpwire.Stat(root), sftpwire.Space(root)
	clock := sftpwire.Open(temp, sftpwire.FlagWrite|sftpwire.FlagCreate|sftpwire.FlagExcl, 0o600)
	err = c.do(ctx, look, space, clock, sftpwire.Remove(temp))
	if err == nil {
		err = c.exists(look)
	}
	if err == nil {
		err = c.late(look, space, t.fresh)
	}
	c.clock = clock.Handle
	if c.server != "" && c.clock != "" {
		// rclone writes an open file back, although its name was removed
		err = cmp.Or(err, c.do(ctx, sftpwire.Close(c.clock), sftpwire.Remove(temp)))
		c.clock = ""
	}
	if err != nil {
		client.Close()
		if errors.Is(err, store.ErrUnreachable) {
			err = fmt.Errorf("opening %q: %v", root, err) // the server was reached, so the error must not have the class of a lost connection
		}
		return c, err
	}
	shared := look.Attrs.Perm & 0o077 // the permissions of the group and of others
	c.fileMode, c.dirMode = 0o600|shared&0o066, 0o700|shared|look.Attrs.Perm&0o2000
	return c, nil
}

// exists returns an error unless a Stat of the root has shown a directory.
func (c *conn) exists(look *sftpwire.Request) error {
	root := cmp.Or(c.root, "/")
	switch err := look.Err(); {
	case err != nil && tooLong(root) != nil:
		return fault.New(store.ErrNotFound, "there is no such directory on the server: a name of over 255 bytes is in %q", root)
	case errors.Is(err, sftpwire.NoSuchFile):
		advice := "repolock doesn't create it; its path begins at the top of the user's chroot, if there is one"
		if !strings.HasPrefix(root, "/") {
			advice = "repolock doesn't create it; with a second slash before it the path would be absolute: sftp://HOST//PATH"
		}
		return fault.Advise(fault.New(store.ErrNotFound, "there is no directory %q on the server", root), advice)
	case err != nil:
		return fault.While(fmt.Sprintf("opening %q", root), err)
	case look.Attrs.Kind() != sftpwire.KindDir:
		return fault.New(store.ErrNotFound, "%q isn't a directory", root)
	}
	return nil
}

func (c *conn) has(extension string) bool {
	_, ok := c.Extension(extension)
	return ok
}

// path returns the path of a key on the server.
func (c *conn) path(key string) string { return c.root + "/" + key }

// temp returns the path of a new temporary file in a directory on the server.
func (c *conn) temp(dir string) string { return c.path(path.Join(dir, files.NewTemp())) }

// do sends requests in one flight, and waits for their answers. If ctx's deadline passes, and the server has been
// silent, do ends the connection, so that the next request opens another one. The server might have been stopped, or
// the network might have forgotten the connection.
func (c *conn) do(ctx context.Context, reqs ...*sftpwire.Request) error {
	now := time.Now()
	c.pipe.asked.CompareAndSwap(nil, &now)
	err := c.Do(ctx, reqs...)
	if err == nil {
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && c.pipe.silent() {
		c.Close()
		return err
	}
	return c.ended(ctx, err)
}

// ended returns the reason for the end of the connection, if err is that end and ssh has named a reason.
func (c *conn) ended(ctx context.Context, err error) error {
	if errors.Is(err, sftpwire.ErrText) {
		return fault.With(err, func(e *fault.Error) {
			e.Class = store.ErrConfig
			e.Advice = "the server must print nothing before SFTP begins: look for output of its ~/.bashrc, for an account without a shell, and for a ForceCommand"
		})
	}
	if !errors.Is(err, sftpwire.ErrLost) {
		return err
	}
	if why := c.why(ctx); why != nil {
		return why
	}
	if errors.Is(err, sftpwire.ErrProtocol) {
		return fault.As(store.ErrConfig, err)
	}
	return errEnded
}

var errEnded = store.Unreachable(errors.New("the ssh connection has ended"))

// later sends requests and doesn't wait for their answers, which don't matter.
func (c *conn) later(reqs ...*sftpwire.Request) {
	go func() { _ = c.Do(context.Background(), reqs...) }()
}

// tooLong returns ErrInvalidKey if a name in a path is longer than a file system allows. The server's status doesn't
// show that.
func tooLong(at string) error {
	if slices.ContainsFunc(strings.Split(at, "/"), func(name string) bool { return len(name) > 255 }) {
		return fmt.Errorf("%w: a name of over 255 bytes", store.ErrInvalidKey)
	}
	return nil
}

// readOnly is a flag of statvfs(3).
const readOnly = 1

// explain adds the reason to the error of a request that writes at a path. The statuses of version 3 name few reasons:
// a full disk, for example, is only a failure.
func (c *conn) explain(ctx context.Context, at string, err error) error {
	switch {
	case err == nil, errors.Is(err, sftpwire.ErrLost), ctx.Err() != nil:
		return err
	case tooLong(at) != nil:
		return tooLong(at)
	}
	space := sftpwire.Space(c.path("."))
	_ = c.do(ctx, space)
	s := space.Statvfs
	switch {
	case space.Err() != nil:
	case s.Flag&readOnly != 0:
		return fault.New(store.ErrReadOnly, "the server's file system is read-only")
	case errors.Is(err, sftpwire.Failure) && (s.Bavail == 0 || s.Files > 0 && s.Favail == 0):
		return fmt.Errorf("%w on the server", store.ErrFull)
	}
	return fault.While(fmt.Sprintf("writing into %q", path.Dir(at)), err)
}
