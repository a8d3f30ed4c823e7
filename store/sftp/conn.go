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
	"sync"
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

	fresh bool // the user vouches for the server's listings

	heard     atomic.Bool  // the server has answered a flight
	linked    atomic.Bool  // the server has made a hard link, and has refused to replace a file by one
	linkless  atomic.Bool  // the server makes no such link, whatever it answers
	flushless atomic.Bool  // the server's file system refuses every fsync
	newest    atomic.Int64 // the latest mod time of a file that we have put, in seconds
	ticks     atomic.Int64 // number of bytes written into the clock

	mu       sync.Mutex
	examined bool             // the root was seen
	server   string           // the program on the server, if it might show other machines' files late; else ""
	shared   uint32           // the root's permissions for the group and for others, and its setgid bit
	clocks   bool             // a Put has made the clock, or is making it
	clock    string           // handle of a file whose mod time shows the server's time, or ""
	strays   []sftpwire.Entry // temporary files that the root had when the clock was made, and that tidy hasn't noted yet
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

// start starts SFTP on a pair of pipes. It asks for nothing: the first operation looks at the repository and the server.
func start(ctx context.Context, rw io.ReadWriteCloser, t target, why reason) (*conn, error) {
	p := &pipe{ReadWriteCloser: rw}
	client, err := sftpwire.New(ctx, p)
	c := &conn{Client: client, pipe: p, why: why, root: strings.TrimSuffix(t.root, "/"), fresh: t.fresh}
	if err != nil {
		return nil, c.ended(ctx, err)
	}
	c.linkless.Store(!c.has(sftpwire.ExtHardlink) || !c.has(sftpwire.ExtPosixRename))
	return c, nil
}

// rootLook looks at the root. The first one of a connection also shows what kind of server it is.
type rootLook struct {
	*conn
	stat, space *sftpwire.Request // space is nil if the server is known
}

func (c *conn) lookAtRoot() rootLook {
	l := rootLook{conn: c, stat: sftpwire.Stat(c.path("."))}
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.examined {
		l.space = sftpwire.Space(c.path("."))
	}
	return l
}

func (l rootLook) requests() []*sftpwire.Request {
	if l.space == nil {
		return []*sftpwire.Request{l.stat}
	}
	return []*sftpwire.Request{l.stat, l.space}
}

// seen returns why the root can't have a lock, or nil.
func (l rootLook) seen() error {
	if err := l.exists(l.stat); err != nil || l.space == nil {
		return err
	}
	server, err := l.late(l.stat, l.space)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.examined, l.server, l.shared = true, server, l.stat.Attrs.Perm&0o2077
	return nil
}

// examine looks at the root, unless the connection has seen it. It only reads. It also opens the root, because the first
// handle of a server shows whether a listing can guess the next ones.
func (c *conn) examine(ctx context.Context) error {
	look := c.lookAtRoot()
	if look.space == nil {
		return nil
	}
	open := sftpwire.Opendir(c.path("."))
	if err := c.do(ctx, append(look.requests(), open)...); err != nil {
		return err
	}
	c.release(open.Handle)
	return look.seen()
}

// newFile are the flags that make a file.
const newFile = sftpwire.FlagWrite | sftpwire.FlagCreate | sftpwire.FlagExcl

// modes returns the modes of files and of directories, so that other users can use them as they can use the root.
func (c *conn) modes() (file, dir uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return 0o600 | c.shared&0o066, 0o700 | c.shared
}

// exists returns an error unless a Stat of the root has shown a directory.
func (c *conn) exists(look *sftpwire.Request) error {
	root := cmp.Or(c.root, "/")
	switch err := look.Err(); {
	case err != nil && tooLong(root) != nil:
		err := fault.New(store.ErrNotFound, "there is no such directory on the server: a name of over 255 bytes is in %q", root)
		return fault.Advise(err, "check the path in the URL: a name in it has at most 255 bytes")
	case errors.Is(err, sftpwire.NoSuchFile):
		advice := "repolock doesn't create it; its path begins at the top of the user's chroot, if there is one"
		if !strings.HasPrefix(root, "/") {
			advice = "repolock doesn't create it; with a second slash before it the path would be absolute: sftp://HOST//PATH"
		}
		return fault.Advise(fault.New(store.ErrNotFound, "there is no directory %q on the server", root), advice)
	case err != nil:
		return fault.While(fmt.Sprintf("opening %q", root), err)
	case look.Attrs.Kind() != sftpwire.KindDir:
		return fault.Advise(fault.New(store.ErrNotFound, "%q isn't a directory", root), "the name belongs to a file: name the directory that has the repository")
	}
	return nil
}

// makesLinks reports whether a Put makes a hard link: links are known to work here, or haven't been tried.
func (c *conn) makesLinks() bool { return !c.linkless.Load() }

// written notes the mod time of a file that we have written.
func (c *conn) written(a sftpwire.Attrs) {
	for was := c.newest.Load(); int64(a.Mtime) > was && !c.newest.CompareAndSwap(was, int64(a.Mtime)); was = c.newest.Load() {
	}
}

// now returns a time that the server's clock has passed, or zero if it is unknown.
func (c *conn) now() (t time.Time) {
	if s := c.newest.Load(); s > 0 {
		t = time.Unix(s, 0)
	}
	return t
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
		c.heard.Store(true)
		return nil
	}
	if errors.Is(ctx.Err(), context.DeadlineExceeded) && c.pipe.silent() {
		c.Close()
		return err
	}
	if err = c.ended(ctx, err); errors.Is(err, store.ErrUnreachable) && !c.heard.Load() {
		err = fmt.Errorf("opening %q: %v", cmp.Or(c.root, "/"), err) // the server has begun SFTP, so it was reached
	}
	return err
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

// flushes reports whether the server can flush a file.
func (c *conn) flushes() bool { return c.has(sftpwire.ExtFsync) && !c.flushless.Load() }

// unflushed explains err, the error of the flush of a temporary file. It returns nil if the file system has no fsync:
// then objects are stored as by a server without the extension, and a crash of the server's machine can lose them.
//
// EINVAL and ENOSYS have statuses of their own. EOPNOTSUPP has the status of a full or broken disk. If the server also
// refuses to flush a new file that is empty, no body was lost by that.
func (c *conn) unflushed(ctx context.Context, temp string, err error) error {
	if !errors.Is(err, sftpwire.BadMessage) && !errors.Is(err, sftpwire.OpUnsupported) {
		name := c.path(path.Join(strings.TrimPrefix(path.Dir(temp), c.root), files.NewTemp()))
		mode, _ := c.modes()
		open := sftpwire.Open(name, newFile, mode)
		if derr := c.do(ctx, open, sftpwire.Remove(name)); derr != nil {
			return derr
		}
		flush := sftpwire.Fsync(open.Handle)
		if open.Err() == nil {
			if derr := c.do(ctx, flush, sftpwire.Close(open.Handle)); derr != nil {
				return derr
			}
		}
		if open.Err() != nil || flush.Err() == nil {
			return c.explain(ctx, temp, fault.While("flushing a file to the server's disk (fsync)", err))
		}
	}
	c.flushless.Store(true)
	return nil
}

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
