//go:build unix

package sftp

import (
	"context"
	"encoding/binary"
	"errors"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// writes reports whether a request changes something on the server.
func (r request) writes() bool {
	switch r.kind {
	case typeOpen:
		flags := r.body[4+len(r.path()):]
		return binary.BigEndian.Uint32([]byte(flags)) != sftpwire.FlagRead
	case typeExtended:
		return r.path() != sftpwire.ExtStatvfs
	}
	return slices.Contains([]byte{typeWrite, 9, typeFsetstat, typeRemove, typeMkdir, typeRmdir, typeRename}, r.kind)
}

// TestReadsWriteNothing: a connection that only reads sends no request that writes, on any server, even if it knows
// nothing of the server yet.
func TestReadsWriteNothing(t *testing.T) {
	for name, make := range map[string]func(root string) *relay{
		"plain":    func(string) *relay { return &relay{} },
		"flushing": func(root string) *relay { return &newFlushing(root).relay },
		"numbered": func(string) *relay { return &relay{numbered: &numbered{given: map[string]string{}}} },
	} {
		root := repository(t, 0o700)
		put(t, inGo.on(t, root), "index/lock.exclusive", "index/lock.shared/a", "data")
		for what, read := range map[string]func(*Store) error{
			"list":      func(s *Store) error { return assert.Err(s.List(t.Context(), "index/lock.", "")) },
			"get":       func(s *Store) error { return assert.Err(second(s.Get(t.Context(), "index/lock.exclusive", 100))) },
			"has other": func(s *Store) error { return assert.Err(s.HasOther(t.Context(), "index/")) },
			"describe":  func(s *Store) error { return assert.Err(s.Describe(t.Context())) },
			"declared":  func(s *Store) error { _ = s.Properties(); return nil },
		} {
			r, writes := make(root), new(atomic.Int32)
			answer := r.answer
			r.answers(func(req request) []byte {
				if req.writes() {
					writes.Add(1)
				}
				if answer != nil {
					return answer(req)
				}
				return nil
			})
			s := r.on(t, root)
			for range 2 {
				assert.OK(t, read(s))
			}
			assert.OK(t, s.Close())
			assert.Equal(t, int(writes.Load()), 0, name+", "+what)
		}
		has(t, root, "data", "index/", "index/lock.exclusive", "index/lock.shared/", "index/lock.shared/a")
	}
}

// TestTrips: a connection, and each step in the life of a lock, take these round trips in a chain, on a server whose
// handles can be guessed and on another one. An exclusive lock's two puts and its two refreshes are beside each other.
// The first steps also learn what kind of server it is.
func TestTrips(t *testing.T) {
	for name, c := range map[string]struct {
		guessed                                 bool
		connect, acquire, look, refresh, status int
	}{
		"guessed": {true, 1, 5, 2, 4, 4},
		"other":   {false, 1, 7, 4, 6, 5},
	} {
		for _, exclusive := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				root := repository(t, 0o700)
				known := inGo.on(t, root)
				put(t, known, "index/lock.shared/a", "index/lock.intent/a")
				assert.OK(t, assert.Err(known.DeleteAll(t.Context(), []string{"index/lock.shared/a", "index/lock.intent/a"})))
				r := &relay{trip: time.Second}
				if c.guessed {
					r.numbered = &numbered{given: map[string]string{}}
				}
				var s *Store
				costs := func(what string, want int, do func() error) {
					t.Helper()
					synctest.Wait()
					began := time.Now()
					assert.OK(t, do())
					assert.Equal(t, int(time.Since(began)/time.Second), want, name+", "+what)
				}
				// together does something with each object of the lock.
				together := func(do func(key string, opts store.PutOptions) error) error {
					done := make(chan error, 1)
					done <- nil
					if exclusive {
						<-done
						go func() { done <- do("index/lock.exclusive", store.PutOptions{IfAbsent: true}) }()
						return errors.Join(do("index/lock.intent/k", store.PutOptions{}), <-done)
					}
					return do("index/lock.shared/k", store.PutOptions{})
				}
				look := func() error { return assert.Err(s.List(t.Context(), "index/lock.", "")) }
				costs("connect", c.connect, func() error { s = r.on(t, root); return nil })
				costs("acquire", c.acquire, func() error {
					return errors.Join(together(func(key string, opts store.PutOptions) error {
						return assert.Err(s.Put(t.Context(), key, []byte("1"), opts))
					}), look())
				})
				costs("look", c.look, look)
				costs("refresh", c.refresh, func() error {
					return together(func(key string, _ store.PutOptions) error {
						ctx, done := store.Preparing(t.Context(), key)
						defer done()
						if err := assert.Err(s.List(ctx, key, "")); err != nil {
							return err
						}
						return assert.Err(s.Put(ctx, key, []byte("2"), store.PutOptions{}))
					})
				})
				costs("release", 1, func() error {
					return assert.Err(s.DeleteAll(t.Context(), []string{"index/lock.exclusive", "index/lock.intent/k", "index/lock.shared/k"}))
				})
				assert.OK(t, s.Close())
				assert.Equal(t, r.dials.Load(), 1)
				if c.guessed {
					r.numbered = &numbered{given: map[string]string{}}
				}
				costs("status by a new connection", c.status, func() error { s = r.on(t, root); return look() })
				has(t, root, "index/", "index/lock.intent/", "index/lock.shared/")
				time.Sleep(time.Second) // the last answers
			})
		}
	}
}

// TestPrepared: the listing before a put makes its temporary file. The put uses it, once. If no put follows, the file is
// removed, and if the put has another key or the connection has ended, the put makes its own.
func TestPrepared(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := repository(t, 0o700)
		r := &relay{}
		s := r.on(t, root)
		put(t, s, "index/k")
		c, err := s.connected(t.Context())
		assert.OK(t, err)
		opens := r.seen(typeOpen)
		opened := func(want int, do func(ctx context.Context)) {
			t.Helper()
			ctx, done := store.Preparing(t.Context(), "index/k")
			assert.OK(t, assert.Err(s.List(ctx, "index/k", "")))
			assert.Equal(t, r.seen(typeOpen)-opens, 2, "the file, and the temporary one")
			do(ctx)
			done()
			synctest.Wait() // done doesn't
			assert.Equal(t, r.seen(typeOpen)-opens, want)
			opens = r.seen(typeOpen)
		}
		puts := func(ctx context.Context, key, body string) {
			t.Helper()
			assert.OK(t, assert.Err(s.Put(ctx, key, []byte(body), store.PutOptions{})))
		}
		opened(2, func(context.Context) {})
		has(t, root, "index/", "index/k")
		opened(3, func(ctx context.Context) { puts(ctx, "index/k", "1"); puts(ctx, "index/k", "2") })
		has(t, root, "index/", "index/k")
		opened(3, func(ctx context.Context) { puts(ctx, "index/other", "3") })
		has(t, root, "index/", "index/k", "index/other")
		for key, want := range map[string]string{"k": "2", "other": "3"} {
			body, err := os.ReadFile(root + "/index/" + key)
			assert.OK(t, err)
			assert.Equal(t, string(body), want, key)
		}
		opened(5, func(ctx context.Context) { // with two files for the new connection's clock
			assert.OK(t, (*r.ended.Load())())
			<-c.Done()
			puts(ctx, "index/k", "4")
		})
	})
}
