package sftp

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/files"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// A Put tries out what the server does with a file, in its own flights. So a connection that only reads writes nothing,
// and no trial costs a round trip.

// linkTrial tries hard links out. The first Put of a connection with IfAbsent links its temporary file twice to one name.
type linkTrial struct{ first, second, look, remove *sftpwire.Request }

func (w *write) tryLinks(temp string) *linkTrial {
	if !w.ifAbsent || w.linked.Load() {
		return nil
	}
	twin := w.temp(w.dir)
	return &linkTrial{sftpwire.Hardlink(temp, twin), sftpwire.Hardlink(temp, twin), sftpwire.Lstat(twin), sftpwire.Remove(twin)}
}

func (t *linkTrial) requests() []*sftpwire.Request {
	if t == nil {
		return nil
	}
	return []*sftpwire.Request{t.first, t.second, t.look, t.remove}
}

// judge returns ErrConditionUnsupported unless hard links honour If-None-Match: the first link is there, and the server has
// refused the second one.
func (w *write) judge(t *linkTrial) error {
	switch {
	case t == nil:
		return nil
	case errors.Is(t.first.Err(), sftpwire.NoSuchFile): // another process has removed the directory
		return t.first.Err()
	case t.first.Err() == nil && t.second.Err() != nil && t.look.Err() == nil:
		w.linked.Store(true)
		return nil
	}
	return w.noLinks(cmp.Or(t.first.Err(), error(sftpwire.Failure)))
}

// noLinks returns the error of a Put with IfAbsent on a server that makes no hard links.
func (c *conn) noLinks(err error) error {
	c.linkless.Store(true)
	return fmt.Errorf("%w: the server's file system has no hard links: %w", store.ErrConditionUnsupported, err)
}

// clockTrial makes the clock of a connection, in the last two flights of a Put. The clock is a file in the root that has
// lost its name, and stays open until the connection ends.
//
// A server without fsync@openssh.com can have a storage below it that isn't a file system: rclone writes an open file back
// although its name was removed. So two files are made there, and the first one is closed. The other one becomes the clock
// unless the name of the first one is there again. The root of such a server is listed, too, because a program that is
// killed meanwhile leaves a file there.
type clockTrial struct {
	*conn
	file, spare       string // paths
	open, other, list *sftpwire.Request
	look              *sftpwire.Request
	reads             []*sftpwire.Request
	handles           []string // the open ones
}

// tryClock returns nil if the connection has a clock, or can have none. rclone gets none.
func (c *conn) tryClock() *clockTrial {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.clocks || c.server != "" {
		return nil
	}
	c.clocks = true
	t := &clockTrial{conn: c, file: c.temp(""), spare: c.temp("")}
	t.open = sftpwire.Open(t.file, newFile, 0o600)
	if !c.has(sftpwire.ExtFsync) {
		t.other, t.list = sftpwire.Open(t.spare, newFile, 0o600), sftpwire.Opendir(c.path("."))
	}
	return t
}

// requests makes the files, and removes their names.
func (t *clockTrial) requests() []*sftpwire.Request {
	switch {
	case t == nil:
		return nil
	case t.other == nil:
		return []*sftpwire.Request{t.open, sftpwire.Remove(t.file)}
	}
	return []*sftpwire.Request{t.open, sftpwire.Remove(t.file), t.other, sftpwire.Remove(t.spare), t.list}
}

// maxStrays is the number of names in the root among which a connection looks for left temporary files. It assumes that
// the server sends 100 names per answer.
const maxStrays = 1000

// opened takes the answers to requests, and returns the requests of the next flight.
func (t *clockTrial) opened() (reqs []*sftpwire.Request) {
	if t == nil {
		return nil
	}
	for _, r := range []*sftpwire.Request{t.open, t.other, t.list} {
		if r != nil && r.Handle != "" {
			t.handles = append(t.handles, r.Handle)
		}
	}
	if t.other == nil {
		return nil
	}
	t.look = sftpwire.Lstat(t.file)
	reqs = []*sftpwire.Request{t.look, sftpwire.Remove(t.file)}
	if t.open.Handle != "" {
		reqs = slices.Insert(reqs, 0, sftpwire.Close(t.open.Handle))
	}
	for range maxStrays / 100 * min(1, len(t.list.Handle)) {
		t.reads = append(t.reads, sftpwire.Readdir(t.list.Handle))
	}
	return append(reqs, t.reads...)
}

// sent notes that the flight with the requests of opened was sent.
func (t *clockTrial) sent() {
	if t != nil && t.other != nil && t.open.Handle != "" {
		t.handles = t.handles[1:]
	}
}

// made takes the answers to the requests of opened. The trial has ended.
func (t *clockTrial) made(ctx context.Context) {
	switch {
	case t == nil:
		return
	case t.other == nil:
		t.mu.Lock()
		defer t.mu.Unlock()
		t.clock = t.open.Handle
		return
	}
	t.release(t.list.Handle)
	t.mu.Lock()
	for _, read := range t.reads {
		t.strays = append(t.strays, slices.DeleteFunc(read.Names, func(e sftpwire.Entry) bool { return !files.IsTemp(e.Name) })...)
	}
	back := t.look.Err() == nil
	if !back {
		t.clock = t.other.Handle
	}
	t.mu.Unlock()
	if back && t.other.Handle != "" {
		_ = t.do(ctx, sftpwire.Close(t.other.Handle), sftpwire.Remove(t.spare))
	}
}

// cancel returns the requests that undo the trial of a Put that has failed. The next Put begins another one.
func (t *clockTrial) cancel() (reqs []*sftpwire.Request) {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	t.clocks = false
	t.mu.Unlock()
	for _, handle := range t.handles {
		reqs = append(reqs, sftpwire.Close(handle))
	}
	return append(reqs, sftpwire.Remove(t.file), sftpwire.Remove(t.spare))
}
