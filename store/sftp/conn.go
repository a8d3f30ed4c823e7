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

	server string // the program on the server, if it might show other machines' files late; else ""

	fileMode, dirMode uint32
	clock             string          // handle of a file whose mod time shows the server's time, or ""
	ticks             atomic.Int64    // number of bytes written into it
	unwritten         error           // why the server has made no file in the root, or nil
	links             store.Condition // whether a hard link never replaces a file
	linkless          atomic.Bool     // the server has made no hard link later, whatever it answered
	flushless         atomic.Bool     // the server's file system refuses every fsync
	newest            atomic.Int64    // the latest mod time of a file that we have put, in seconds

	straysMu sync.Mutex
	strays   []sftpwire.Entry // temporary files that the root had at the start, and that tidy hasn't noted yet
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

// start starts SFTP on a pair of pipes, and examines the repository and the server.
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
	look, err := c.examine(ctx, root, t.fresh)
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

// examine looks at the root, and tries out what the server does with a file. A file that stays open without a name
// shows the server's time until the connection ends.
//
// A server with fsync@openssh.com gets all requests in one flight. Another server can have a storage below it that isn't
// a file system: rclone writes an open file back although its name was removed. So it gets the trial in a second flight,
// and rclone gets none. Its root is listed too, because a program that is killed in between leaves a file there.
func (c *conn) examine(ctx context.Context, root string, fresh bool) (look *sftpwire.Request, err error) {
	look, space, list := sftpwire.Stat(root), sftpwire.Space(root), sftpwire.Opendir(root)
	t := trial{file: c.temp(""), twin: c.temp(""), spare: c.temp(""), links: c.has(sftpwire.ExtHardlink) && c.has(sftpwire.ExtPosixRename), direct: c.has(sftpwire.ExtFsync)}
	if t.direct {
		if err = c.do(ctx, append(t.requests(), look, space)...); err != nil {
			return look, err
		}
		c.learn(&t)
		err = cmp.Or(c.exists(look), c.late(look, space, fresh))
		if c.server != "" && c.clock != "" { // a mount of rclone writes an open file back, too
			_ = c.do(ctx, sftpwire.Close(c.clock), sftpwire.Remove(t.file))
			c.clock = ""
		}
		return look, err
	}
	if err = c.do(ctx, look, space, list); err == nil {
		err = cmp.Or(c.exists(look), c.late(look, space, fresh))
	}
	if err != nil {
		return look, err
	}
	var reads, reqs []*sftpwire.Request
	for range maxStrays / 100 * min(1, len(list.Handle)) {
		reads = append(reads, sftpwire.Readdir(list.Handle))
	}
	if c.server == "" {
		reqs = t.requests()
	}
	if err = c.do(ctx, append(reqs, reads...)...); err != nil {
		return look, err
	}
	c.release(list.Handle)
	for _, read := range reads {
		c.strays = append(c.strays, slices.DeleteFunc(read.Names, func(e sftpwire.Entry) bool { return !files.IsTemp(e.Name) })...)
	}
	if c.server != "" {
		return look, nil
	}
	c.learn(&t)
	return look, c.takesBack(ctx, &t)
}

// maxStrays is how many names of the root a connection looks at for temporary files, if the server sends 100 at a time.
const maxStrays = 1000

// trial tries out a server with a temporary file in the root.
type trial struct {
	file, twin, spare   string // paths
	links, direct       bool   // the server names the extensions for locks by links, and for flushes
	open, other         *sftpwire.Request
	first, second, look *sftpwire.Request
}

// requests makes a file, links it twice to one name, and removes the names.
func (t *trial) requests() (reqs []*sftpwire.Request) {
	const flags = sftpwire.FlagWrite | sftpwire.FlagCreate | sftpwire.FlagExcl
	t.open = sftpwire.Open(t.file, flags, 0o600)
	reqs = append(reqs, t.open)
	if t.links {
		t.first, t.second, t.look = sftpwire.Hardlink(t.file, t.twin), sftpwire.Hardlink(t.file, t.twin), sftpwire.Lstat(t.twin)
		reqs = append(reqs, t.first, t.second, t.look, sftpwire.Remove(t.twin))
	}
	reqs = append(reqs, sftpwire.Remove(t.file))
	if !t.direct {
		t.other = sftpwire.Open(t.spare, flags, 0o600)
		reqs = append(reqs, t.other, sftpwire.Remove(t.spare))
	}
	return reqs
}

// learn learns from the answers to a trial. Hard links keep If-None-Match if the first link is there, and the second one
// was refused. If the server made no file, they are only claimed to.
func (c *conn) learn(t *trial) {
	c.clock, c.unwritten = t.open.Handle, t.open.Err()
	switch {
	case !t.links:
	case c.unwritten != nil:
		c.links = store.Claimed
	case t.first.Err() == nil && t.second.Err() != nil && t.look.Err() == nil:
		c.links = store.Kept
	}
}

// takesBack closes the trial's file, whose name was removed. If the name is there again, the server has written the file
// back, so no file can stay open without a name. Otherwise the spare file becomes the clock.
func (c *conn) takesBack(ctx context.Context, t *trial) error {
	look, spare := sftpwire.Lstat(t.file), t.other.Handle
	reqs := []*sftpwire.Request{look, sftpwire.Remove(t.file)}
	if c.clock != "" {
		reqs = slices.Insert(reqs, 0, sftpwire.Close(c.clock))
	}
	err := c.do(ctx, reqs...)
	if c.clock = spare; err == nil && look.Err() == nil && spare != "" {
		c.clock = ""
		err = c.do(ctx, sftpwire.Close(spare), sftpwire.Remove(t.spare))
	}
	return err
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

// makesLinks reports whether a Put can rely on a hard link, or can try one.
func (c *conn) makesLinks() bool { return c.links != store.Unsupported && !c.linkless.Load() }

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
		open := sftpwire.Open(name, sftpwire.FlagWrite|sftpwire.FlagCreate|sftpwire.FlagExcl, c.fileMode)
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
