package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/repolock/repolock/internal/fault"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// chunk is the number of bytes that one Read asks for. A server can return fewer.
const chunk = sftpwire.MaxWrite

// Get reads a file of at most limit bytes. It looks at the file before it opens it, because the open of a pipe would
// wait for its writer, and block all of OpenSSH's connection.
func (s *Store) Get(ctx context.Context, key string, limit int64) ([]byte, store.Object, error) {
	c, err := s.begin(ctx, key)
	if err == nil {
		err = c.examine(ctx)
	}
	if err != nil {
		return nil, store.Object{}, failed("get", key, err)
	}
	var body []byte
	var obj store.Object
	for range files.MaxScans {
		if body, obj, err = c.find(ctx, key, max(limit, files.MaxHashed)); !errors.Is(err, sftpwire.NoSuchFile) {
			break
		}
		// Some file systems (FUSE) don't find a name while it is being replaced.
		if listed, lerr := c.lists(ctx, key); lerr != nil || !listed {
			err = cmp.Or(lerr, store.ErrNotFound)
			break
		}
	}
	if err == nil && obj.Size > limit {
		err = store.ErrTooLarge
	}
	if err != nil {
		return nil, store.Object{}, failed("get", key, err)
	}
	return body, obj, nil
}

// find is get for a key that might not belong to a regular file. A directory is no object.
func (c *conn) find(ctx context.Context, key string, most int64) (body []byte, obj store.Object, err error) {
	look := sftpwire.Lstat(c.path(key))
	if err := c.do(ctx, look); err != nil {
		return nil, obj, err
	}
	switch kind, err := look.Attrs.Kind(), look.Err(); {
	case errors.Is(err, sftpwire.Failure) && errors.Is(c.absent(ctx, key, err), sftpwire.NoSuchFile), err == nil && kind == sftpwire.KindDir:
		return nil, obj, store.ErrNotFound
	case err != nil:
		return nil, obj, err
	case kind != sftpwire.KindRegular:
		return nil, obj, fmt.Errorf("%w: not a regular file", store.ErrIrregular)
	}
	return c.get(ctx, key, most)
}

// lists reports whether a directory lists the name of a key.
func (c *conn) lists(ctx context.Context, key string) (bool, error) {
	dir, name := files.Split(key)
	names, err := c.names(ctx, dir)
	return slices.ContainsFunc(names, func(e sftpwire.Entry) bool { return e.Name == name }), err
}

// get opens and reads a regular file. It returns no body if the file has more than most bytes.
func (c *conn) get(ctx context.Context, key string, most int64) (body []byte, obj store.Object, err error) {
	open := sftpwire.Open(c.path(key), sftpwire.FlagRead, 0)
	if err := c.do(ctx, open); err != nil {
		return nil, obj, err
	}
	if err := open.Err(); err != nil {
		return nil, obj, err
	}
	defer c.later(sftpwire.Close(open.Handle))
	read, stat := sftpwire.Read(open.Handle, 0, chunk), sftpwire.Fstat(open.Handle)
	if err := c.do(ctx, read, stat); err != nil {
		return nil, obj, err
	}
	body, obj, err = readBody(read, stat, most)
	for errors.Is(err, errMore) {
		next := sftpwire.Read(open.Handle, uint64(len(body)), chunk)
		if err := c.do(ctx, next); err != nil {
			return nil, obj, err
		}
		body = append(body, next.Data...)
		switch err = next.Err(); {
		case errors.Is(err, sftpwire.EOF):
			err = nil
		case err == nil && int64(len(body)) > most:
			body = nil // the file has grown
		case err == nil:
			err = errMore
		}
	}
	if err == nil && body != nil {
		obj.Size, obj.ETag = int64(len(body)), etag(body, stat.Attrs)
	}
	obj.Key = key
	return body, obj, err
}

// absent returns NoSuchFile if the key is below a regular file, for which some servers answer Failure. Otherwise it
// returns err.
func (c *conn) absent(ctx context.Context, key string, err error) error {
	if !errors.Is(err, sftpwire.Failure) {
		return err
	}
	dir, _ := files.Split(key)
	var looks []*sftpwire.Request
	for _, above := range ancestors(dir) {
		looks = append(looks, sftpwire.Lstat(c.path(above)))
	}
	if c.do(ctx, looks...) == nil && slices.ContainsFunc(looks, func(r *sftpwire.Request) bool { return r.Attrs.Kind() == sftpwire.KindRegular }) {
		return sftpwire.NoSuchFile
	}
	return err
}

// errMore means that a file has more bytes than the first Read has returned.
var errMore = errors.New("the file has more bytes")

// readBody returns a file's body and object from the answers to its first Read and to an Fstat. It returns no body if
// the file has more than most bytes.
func readBody(read, stat *sftpwire.Request, most int64) ([]byte, store.Object, error) {
	err := read.Err()
	if errors.Is(err, sftpwire.EOF) {
		err = nil
	}
	if err == nil {
		err = stat.Err()
	}
	obj := described(stat.Attrs)
	if err != nil || obj.Size > most {
		return nil, obj, err
	}
	body := slices.Clip(append([]byte{}, read.Data...))
	if int64(len(body)) < obj.Size {
		return body, obj, errMore
	}
	// Another program can write to an open file, so the size must be the body's.
	obj.Size, obj.ETag = int64(len(body)), etag(body, stat.Attrs)
	return body, obj, nil
}

// described returns the object of a regular file whose body wasn't read.
func described(a sftpwire.Attrs) store.Object {
	return store.Object{ETag: statTag(a), Size: int64(a.Size), ModTime: modTime(a)}
}

func etag(body []byte, a sftpwire.Attrs) string {
	if len(body) > files.MaxHashed {
		return statTag(a)
	}
	return files.ETag(body)
}

// statTag returns the ETag of a file that is too large, or can't be read. It begins with "s-", and changes if the size
// or the mtime changes.
func statTag(a sftpwire.Attrs) string { return fmt.Sprintf("s-%x-%x", a.Size, a.Mtime) }

// Delete removes the file, link or pipe, and then the empty directories above it. It also removes an invalid key or an
// empty folder that List shows. It refuses any other invalid key.
func (s *Store) Delete(ctx context.Context, key string) error {
	invalid := files.CheckKey(key)
	if invalid != nil && !files.Listable(key) {
		return failed("delete", key, invalid)
	}
	c, errs, err := s.remove(ctx, []string{key})
	if err == nil {
		err = c.unremoved(ctx, key, errs[0])
		if errors.Is(err, sftpwire.NoSuchFile) {
			err = invalid
		}
	}
	return failed("delete", key, err)
}

// DeleteAll implements store.BatchDeleter.
func (s *Store) DeleteAll(ctx context.Context, keys []string) ([]bool, error) {
	deleted := make([]bool, len(keys))
	valid := slices.DeleteFunc(slices.Clone(keys), func(key string) bool { return files.CheckKey(key) != nil })
	_, errs, err := s.remove(ctx, valid)
	if err != nil {
		return deleted, failed("delete", strings.Join(keys[:min(1, len(keys))], ""), err)
	}
	for i, err := range errs {
		deleted[slices.Index(keys, valid[i])] = err == nil || errors.Is(err, sftpwire.NoSuchFile)
	}
	return deleted, nil
}

// remove removes files, and empty directories whose keys end with a slash, in one flight. It returns the error of each.
//
// A removal that was answered with success has failed if the name is still there. Another process might have put the
// object again, so this error isn't final, and a caller must look before it repeats the deletion of an object that
// others write.
func (s *Store) remove(ctx context.Context, keys []string) (c *conn, errs []error, err error) {
	if c, err = s.ready(ctx); err != nil {
		return nil, nil, err
	}
	var reqs []*sftpwire.Request
	for _, key := range keys {
		reqs = append(reqs, c.removal(key), sftpwire.Lstat(c.path(strings.TrimSuffix(key, "/"))))
	}
	root := sftpwire.Stat(c.path("."))
	if err = c.do(ctx, slices.Concat(reqs, s.tidy(c, keys), []*sftpwire.Request{root})...); err == nil {
		err = c.exists(root)
	}
	for pair := range slices.Chunk(reqs, 2) {
		err := pair[0].Err()
		if err == nil && pair[1].Err() == nil {
			err = errStill
		}
		errs = append(errs, err)
	}
	return c, errs, err
}

var errStill = errors.New("the server reports that it has removed the file, but it is still there")

// removal returns the request that removes the file or the empty directory of a key.
func (c *conn) removal(key string) *sftpwire.Request {
	if folder := len(key) > 0 && key[len(key)-1] == '/'; folder {
		return sftpwire.Rmdir(c.path(key[:len(key)-1]))
	}
	return sftpwire.Remove(c.path(key))
}

// unremoved explains err, the error of the removal of a key. It returns NoSuchFile for a directory, because a directory
// is no object.
func (c *conn) unremoved(ctx context.Context, key string, err error) error {
	if err == nil || errors.Is(err, sftpwire.NoSuchFile) || errors.Is(err, errStill) {
		return err
	}
	look := sftpwire.Lstat(c.path(key))
	if err := c.do(ctx, look); err != nil {
		return err
	}
	isDir := look.Attrs.Kind() == sftpwire.KindDir
	switch folder := key[len(key)-1] == '/'; {
	case errors.Is(c.absent(ctx, key, look.Err()), sftpwire.NoSuchFile), isDir && !folder:
		return sftpwire.NoSuchFile
	case folder && isDir && errors.Is(err, sftpwire.Failure):
		return fmt.Errorf("%w: the folder isn't empty", store.ErrInvalidKey)
	}
	return c.explain(ctx, c.path(key), err)
}

// tidy returns requests that remove the directories above keys, and temporary files that dead processes have left. The
// server refuses to remove a directory that isn't empty.
func (s *Store) tidy(c *conn, keys []string) (reqs []*sftpwire.Request) {
	var dirs []string
	for _, key := range keys {
		dir, _ := files.Split(key)
		for ; dir != ""; dir, _ = files.Split(dir) {
			_, made := s.made.Load(dir)
			if !files.Prunes(dir, made) {
				break
			}
			dirs = append(dirs, dir)
		}
	}
	for _, dir := range slices.Backward(files.Set(dirs)) { // a directory comes before the one above it
		reqs = append(reqs, sftpwire.Rmdir(c.path(dir)))
	}
	c.mu.Lock()
	c.strays = slices.DeleteFunc(c.strays, func(e sftpwire.Entry) bool { return s.stray(c, "", e, c.now()) })
	c.mu.Unlock()
	s.old.Range(func(path, isDir any) bool {
		s.old.Delete(path)
		remove := sftpwire.Remove
		if isDir.(bool) {
			remove = sftpwire.Rmdir
		}
		reqs = append(reqs, remove(path.(string)))
		return true
	})
	return reqs
}

// stray notes a temporary file for tidy, and returns true, if it is so old at a time that no living process has it.
func (s *Store) stray(c *conn, at string, e sftpwire.Entry, now time.Time) bool {
	if now.IsZero() || now.Sub(modTime(e.Attrs)) <= files.Abandoned {
		return false
	}
	s.old.Store(c.path(at+e.Name), e.Attrs.Kind() == sftpwire.KindDir)
	return true
}

// noRename returns why a server without posix-rename@openssh.com can't keep a lock. Some servers have the extension and
// don't name it (a server of paramiko that implements posix_rename), so a Put asks for it all the same. The server's
// own rename doesn't replace a file, or doesn't promise to do so in one step. If a Put removed the file first, for a
// moment no listing would show the lock.
//
// A server that permits no writes doesn't name the extension either. err is the server's refusal.
func (c *conn) noRename(err error) error {
	if errors.Is(err, sftpwire.PermissionDenied) {
		return fault.Advise(fault.New(store.ErrReadOnly, "the server lets this user write nothing into %q, and offers no %s, like a read-only server", cmp.Or(c.root, "/"), sftpwire.ExtPosixRename),
			"a lock needs a server that permits writes: look for -R or a read-only setting in the server's configuration")
	}
	return fault.Advise(fault.New(store.ErrConfig, "the server can't replace a lock in one step, because it has no %s (like SFTPGo, MySecureShell and a plain server of paramiko)", sftpwire.ExtPosixRename),
		"serve the directory by OpenSSH's sshd, ProFTPD or asyncssh, or use the URL of the storage itself; docs/evidence/stores.md lists the servers")
}

// maxTries is how often a Put makes its directory again after another process has removed the empty directory.
const maxTries = 100

// Put writes the body to a temporary file beside its place, and then moves it there in one step. It
// returns once the server's disk has both.
func (s *Store) Put(ctx context.Context, key string, body []byte, opts store.PutOptions) (store.Object, error) {
	obj, err := s.put(ctx, key, body, opts)
	return obj, failed("put", key, err)
}

func (s *Store) put(ctx context.Context, key string, body []byte, opts store.PutOptions) (obj store.Object, err error) {
	c, err := s.begin(ctx, key)
	switch {
	case err != nil:
		return obj, err
	case opts.IfMatch != "", opts.IfAbsent && !c.makesLinks():
		return obj, store.ErrConditionUnsent
	}
	w := write{Store: s, conn: c, key: key, body: body, ifAbsent: opts.IfAbsent}
	w.dir, _ = files.Split(key)
	for range maxTries {
		if obj, err = w.try(ctx); !errors.Is(err, sftpwire.NoSuchFile) {
			return obj, err
		}
	}
	return obj, err
}

// write is one Put under way.
type write struct {
	*Store
	*conn
	key, dir string
	body     []byte
	ifAbsent bool
	folders  []string    // handles of dir and of the directories above it, to flush them
	files    []string    // handles of files that discard closes
	clocks   *clockTrial // under way, or nil
	unlinked int         // how often the move has failed although the name was free
}

// try sends three flights: they create the temporary file, fill it, and move it. The move can't be in one flight with
// the writes, because the server would move the file even after a failed write. The trials of links and of a clock are
// in the same flights. If the listing before has made the temporary file, try sends two.
//
// try returns NoSuchFile if another process has removed the directory meanwhile.
func (w *write) try(ctx context.Context) (obj store.Object, err error) {
	var attrs sftpwire.Attrs
	temp, ready := store.Prepares(ctx).Take(w.key).(prepared)
	if !ready || temp.conn != w.conn {
		temp.path = w.temp(w.dir)
		temp.handle, err = w.create(ctx, temp.path)
	}
	if err == nil {
		attrs, err = w.fill(ctx, temp.handle, temp.path)
	}
	if err == nil {
		err = w.move(ctx, temp.path)
	}
	if err != nil {
		w.discard(ctx, temp.path)
		return obj, err
	}
	return store.Object{Key: w.key, ETag: etag(w.body, attrs), Size: int64(len(w.body)), ModTime: modTime(attrs)}, nil
}

// discard removes the files of a failed try. It waits for the answers, because the process might end soon. If ctx has
// ended, it doesn't wait.
func (w *write) discard(ctx context.Context, temp string) {
	var reqs []*sftpwire.Request
	for _, handle := range append(w.files, w.folders...) { // first, because some servers write a file back that is closed later
		reqs = append(reqs, sftpwire.Close(handle))
	}
	reqs = slices.Concat(reqs, []*sftpwire.Request{sftpwire.Remove(temp)}, w.tidy(w.conn, []string{w.key}), w.clocks.cancel())
	w.folders, w.files, w.clocks = nil, nil, nil
	if ctx.Err() != nil {
		w.later(reqs...)
	} else {
		_ = w.do(ctx, reqs...)
	}
}

// create makes the temporary file. If directories are missing, it makes them first.
func (w *write) create(ctx context.Context, temp string) (handle string, err error) {
	for again := false; ; again = true {
		root, above := w.lookAtRoot(), ancestors(w.dir)
		looks := make([]*sftpwire.Request, len(above))
		for i, dir := range above {
			looks[i] = sftpwire.Lstat(w.path(dir))
		}
		mode, _ := w.modes()
		open := sftpwire.Open(temp, newFile, mode)
		if err := w.do(ctx, slices.Concat(looks, root.requests(), []*sftpwire.Request{open})...); err != nil {
			return "", err
		}
		err = root.seen()
		for i, look := range looks {
			if err == nil {
				err = w.isFolder(above[i], look)
			}
			if err == nil && look.Err() == nil && look.Attrs.Kind() == sftpwire.KindRegular {
				err = w.notDirectory(above[i])
			}
		}
		if err != nil {
			if open.Handle != "" {
				w.files = append(w.files, open.Handle)
			}
			return "", err
		}
		missing := slices.IndexFunc(looks, func(r *sftpwire.Request) bool { return errors.Is(r.Err(), sftpwire.NoSuchFile) })
		switch err := open.Err(); {
		case err == nil:
			return open.Handle, nil
		case errors.Is(err, sftpwire.PermissionDenied) && !w.has(sftpwire.ExtPosixRename):
			return "", w.noRename(err)
		case !errors.Is(err, sftpwire.NoSuchFile), again && missing >= 0:
			return "", w.explain(ctx, temp, err)
		case missing < 0: // another process has removed the directory, and made it again
			return "", err
		default:
			if err := w.mkdirs(ctx, above[missing:]); err != nil {
				return "", err
			}
		}
	}
}

// mkdirs makes directories, each below the one before. A directory gets its mode before its name, so that it never
// refuses another user.
func (w *write) mkdirs(ctx context.Context, dirs []string) error {
	var reqs []*sftpwire.Request
	_, mode := w.modes()
	for _, dir := range dirs {
		parent, _ := files.Split(dir)
		temp := w.temp(parent)
		reqs = append(reqs, sftpwire.Mkdir(temp, mode), sftpwire.Setstat(temp, sftpwire.Attrs{Flags: sftpwire.HasPerm, Perm: mode}),
			sftpwire.Rename(temp, w.path(dir)), sftpwire.Rmdir(temp))
	}
	if err := w.do(ctx, reqs...); err != nil {
		return err
	}
	for i, dir := range dirs {
		made, moved, left := reqs[4*i].Err(), reqs[4*i+2].Err(), reqs[4*i+3].Err() == nil
		switch {
		case made != nil && !errors.Is(made, sftpwire.NoSuchFile):
			return w.explain(ctx, w.path(dir), made)
		case made == nil && errors.Is(moved, sftpwire.NoSuchFile), moved == nil && left:
			return fault.New(store.ErrConfig, "the server reports that it has made the directory %q, but it hasn't", w.path(dir))
		case moved == nil:
			w.made.Store(dir, nil)
		}
	}
	return nil
}

// fill writes the temporary file, and opens its directory and the directories above it, so that move can make the new
// name durable. Another process might have made these directories without flushing them yet.
func (w *write) fill(ctx context.Context, handle, temp string) (attrs sftpwire.Attrs, err error) {
	mode, _ := w.modes()
	reqs := []*sftpwire.Request{sftpwire.Fsetstat(handle, sftpwire.Attrs{Flags: sftpwire.HasPerm, Perm: mode})}
	offset := uint64(0)
	for part := range slices.Chunk(w.body, chunk) {
		reqs = append(reqs, sftpwire.Write(handle, offset, part))
		offset += uint64(len(part))
	}
	// Some servers process an Fstat before the writes, but none processes a request before an earlier Close.
	stat := sftpwire.Lstat(temp)
	flush := sftpwire.Fsync(handle)
	if w.flushes() {
		reqs = append(reqs, flush)
	}
	reqs = append(reqs, sftpwire.Close(handle), stat)
	var dirs []*sftpwire.Request
	if w.flushes() {
		for _, dir := range slices.Backward(append([]string{"."}, ancestors(w.dir)...)) {
			dirs = append(dirs, sftpwire.Open(w.path(dir), sftpwire.FlagRead, 0))
		}
	}
	links := w.tryLinks(temp)
	w.clocks = w.tryClock()
	if err := w.do(ctx, slices.Concat(reqs, links.requests(), dirs, w.clocks.requests())...); err != nil {
		return attrs, err
	}
	for _, dir := range dirs {
		if dir.Handle != "" { // a directory might be readable by others only
			w.folders = append(w.folders, dir.Handle)
		}
	}
	for _, r := range reqs[1:] { // skip the first answer: a server can refuse the mode
		err := r.Err()
		if err != nil && r == flush {
			err = w.unflushed(ctx, temp, err)
		} else if err != nil {
			err = w.explain(ctx, temp, err)
		}
		if err != nil {
			return attrs, err
		}
	}
	attrs = stat.Attrs
	if int(attrs.Size) != len(w.body) {
		return attrs, w.explain(ctx, temp, fmt.Errorf("%w: the file has %d bytes of %d", sftpwire.Failure, attrs.Size, len(w.body)))
	}
	w.written(attrs)
	return attrs, w.judge(links)
}

func (c *conn) release(handle string) {
	if handle != "" {
		c.later(sftpwire.Close(handle))
	}
}

// move renames the temporary file to the name of the key. It is the one atomic step of a Put. With IfAbsent it makes a
// link, which replaces nothing.
//
// Some servers answer with success, and do nothing (rclone 1.60: a link). So move also looks: after a rename the
// temporary name is gone, and after a link the new name is there.
func (w *write) move(ctx context.Context, temp string) error {
	to := w.path(w.key)
	reqs := []*sftpwire.Request{sftpwire.PosixRename(temp, to), sftpwire.Lstat(temp)}
	if w.ifAbsent {
		reqs = []*sftpwire.Request{sftpwire.Hardlink(temp, to), sftpwire.Lstat(to), sftpwire.Remove(temp)}
	}
	move, look := reqs[0], reqs[1]
	for _, folder := range w.folders { // some file systems can't flush a directory, so a failure doesn't count
		reqs = append(reqs, sftpwire.Fsync(folder), sftpwire.Close(folder))
	}
	w.folders = nil
	err := w.do(ctx, append(reqs, w.clocks.opened()...)...)
	w.clocks.sent()
	if err != nil {
		return err
	}
	w.clocks.made(ctx)
	w.clocks = nil
	switch err := move.Err(); {
	case errors.Is(err, sftpwire.OpUnsupported) && !w.ifAbsent, err != nil && !w.ifAbsent && !w.has(sftpwire.ExtPosixRename):
		return w.noRename(err)
	case err != nil:
		return w.unmoved(ctx, to, err)
	case w.ifAbsent && errors.Is(look.Err(), sftpwire.NoSuchFile):
		return w.unmoved(ctx, to, sftpwire.Failure)
	case !w.ifAbsent && look.Err() == nil:
		return fault.New(store.ErrConfig, "the server reports that it has renamed %q, but it hasn't", temp)
	}
	return nil
}

// maxUnlinked is how often a Put tries again to make a link. The server has made one before, but the folder can be on
// another file system.
const maxUnlinked = 3

// unmoved explains err, the error of a failed move.
func (w *write) unmoved(ctx context.Context, to string, err error) error {
	look := sftpwire.Lstat(to)
	if lerr := w.do(ctx, look); lerr != nil {
		return lerr
	}
	switch exists := look.Err() == nil; {
	case exists && look.Attrs.Kind() == sftpwire.KindDir:
		return fmt.Errorf("%w: %q is a directory", store.ErrIrregular, to)
	case exists && w.ifAbsent:
		return store.ErrPrecondition
	case w.ifAbsent && w.unlinked < maxUnlinked && errors.Is(err, sftpwire.Failure):
		w.unlinked++ // another object might have had the name, and is deleted by now: try again
		return sftpwire.NoSuchFile
	case w.ifAbsent && !errors.Is(err, sftpwire.NoSuchFile):
		return w.noLinks(err)
	}
	return w.explain(ctx, to, err)
}
