package sftpwire

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// counted counts writes.
type counted struct {
	net.Conn
	writes atomic.Int32
}

func (c *counted) Write(b []byte) (int, error) {
	c.writes.Add(1)
	return c.Conn.Write(b)
}

// TestOneWrite: the requests of one Do are one write, in order. Their answers can come in any order.
func TestOneWrite(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		conn := &counted{Conn: c.rw.(net.Conn)}
		c.rw = conn
		write, stat, read, closing := Write("h", 7, []byte("body")), Fstat("h"), Read("h", 0, 9), Close("h")
		done := doing(t.Context(), c, write, stat, read, closing)
		var ids []uint32
		for _, kind := range []byte{typeWrite, typeFstat, typeRead, typeClose} {
			p := s.receive()
			assert.Equal(t, p.kind, kind)
			assert.Equal(t, p.string(), "h")
			ids = append(ids, p.id)
		}
		assert.Equal(t, conn.writes.Load(), 1)
		want := Attrs{Flags: HasSize | HasPerm, Size: 11, Perm: KindRegular | 0o644}
		s.send(
			status(ids[3], Failure),
			packet(typeData, ids[2], func(r *Request) { r.string("0123body") }),
			packet(typeAttrs, ids[1], func(r *Request) { r.attrs(want) }),
			status(ids[0], OK),
		)
		assert.OK(t, <-done)
		assert.OK(t, write.Err())
		assert.Equal(t, stat.Attrs, want)
		assert.Equal(t, string(read.Data), "0123body")
		assert.Says(t, closing.Err(), Failure, `failure: the server says "so it is"`)
	})
}

// TestContext: when the context ends, Do returns, and the answer that comes later is dropped. The
// request keeps its id until then.
func TestContext(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		slow := Remove("a")
		done := doing(ctx, c, slow)
		late := s.receive()
		err := <-done
		assert.Is(t, err, context.DeadlineExceeded)
		assert.That(t, !errors.Is(err, ErrUnsent), "%v", err)
		assert.That(t, !slow.Answered && slow.Err() != nil, "%+v has no answer", slow)

		c.last = late.id - 1
		done = doing(t.Context(), c, Remove("b"))
		next := s.receive()
		assert.That(t, next.id != late.id, "id %d has two requests", late.id)
		s.send(status(late.id, Failure), status(next.id, OK))
		assert.OK(t, <-done)
		assert.That(t, !slow.Answered, "a late answer was written into the request")
		assert.OK(t, c.Err())
	})
}

// TestStuck: Do returns at the end of its context although the server doesn't read. A Do whose requests
// aren't even begun says so, and a handle that one of them had to close is closed later.
func TestStuck(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		first := doing(ctx, c, Remove("a"))
		synctest.Wait()
		second := doing(ctx, c, Fstat("h"), Close("h"))
		err := <-first
		assert.Is(t, err, context.DeadlineExceeded)
		assert.That(t, !errors.Is(err, ErrUnsent), "%v, and the write has begun", err)
		err = <-second
		assert.Is(t, err, context.DeadlineExceeded)
		assert.Is(t, err, ErrUnsent)

		assert.Equal(t, s.receive().kind, typeRemove)
		p := s.receive()
		assert.Equal(t, p.kind, typeClose)
		assert.Equal(t, p.string(), "h")
		s.send(status(p.id, OK))
		synctest.Wait()
		assert.Equal(t, len(c.pending), 1, "the first request")
	})
}

// TestEnded: nothing is sent under a context that has ended.
func TestEnded(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for range 50 { // select would choose at random
			synctest.Wait()
			err := c.Do(ctx, Remove("a"))
			assert.Is(t, err, ErrUnsent)
			assert.Is(t, err, context.Canceled)
		}
		assert.Equal(t, len(c.pending), 0)
	})
}

// TestNone: Do without requests returns at once.
func TestNone(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, _ *fake) { assert.OK(t, c.Do(t.Context())) })
}

// TestAgain: a request that is sent again has no answer of before.
func TestAgain(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		r := Open("a", FlagRead, 0)
		done := doing(t.Context(), c, r)
		s.send(handle(s.receive().id, "h"))
		assert.OK(t, <-done)
		assert.Equal(t, r.Answer, Answer{Answered: true, Handle: "h"})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		assert.Is(t, c.Do(ctx, r), ErrUnsent)
		assert.Equal(t, r.Answer, Answer{})
	})
}

// TestAllAnswered: an end of the context that comes after all answers is no error.
func TestAllAnswered(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, _ *fake) {
		r := Open("a", FlagRead, 0)
		r.Answer = Answer{Answered: true, Handle: "h"}
		assert.That(t, c.abandon(&flight{}, []*Request{r}, true), "abandon has left answered requests")
		assert.Equal(t, r.Handle, "h")
	})
}

// mute can't be written to any more.
type mute struct{ net.Conn }

func (m mute) Write([]byte) (int, error) { return 0, io.ErrShortWrite }

// TestWriteFails: a write that fails ends the connection.
func TestWriteFails(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, _ *fake) {
		c.rw = mute{c.rw.(net.Conn)}
		err := c.Do(t.Context(), Remove("a"))
		assert.Is(t, err, ErrLost)
		assert.Is(t, err, io.ErrShortWrite)
		assert.That(t, !errors.Is(err, ErrUnsent), "%v, and a part might be sent", err)
	})
}

// TestLateHandle: a handle is closed if Do has returned without it, and also if Do returns an error
// because another request isn't answered.
func TestLateHandle(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		reqs := []*Request{Open("a", FlagRead, 0), Opendir("b"), Lstat("c")}
		done := doing(ctx, c, reqs...)
		a, b, _ := s.receive(), s.receive(), s.receive()
		s.send(handle(a.id, "of a"))
		assert.Is(t, <-done, context.DeadlineExceeded)
		assert.Equal(t, reqs[0].Handle, "")
		s.send(handle(b.id, "of b"))
		var closed []string
		for range 2 {
			p := s.receive()
			assert.Equal(t, p.kind, typeClose)
			closed = append(closed, p.string())
		}
		slices.Sort(closed)
		assert.Equal(t, closed, []string{"of a", "of b"})
	})
}

// TestLost: when the server ends the connection, each Do returns ErrLost, and later ones ErrUnsent too.
func TestLost(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		one, two := doing(t.Context(), c, Remove("a")), doing(t.Context(), c, Remove("b"))
		s.receive()
		s.receive()
		s.Close()
		for _, done := range []chan error{one, two} {
			err := <-done
			assert.Says(t, err, ErrLost, "no sftp connection: EOF")
			assert.Is(t, err, io.EOF)
			assert.That(t, !errors.Is(err, ErrUnsent), "%v, and it was sent", err)
		}
		<-c.Done()
		assert.Is(t, c.Err(), ErrLost)
		err := c.Do(t.Context(), Remove("c"))
		assert.Is(t, err, ErrUnsent)
		assert.Is(t, err, ErrLost)
	})
}

// TestClose: Close ends the connection, also while the server doesn't read.
func TestClose(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		assert.OK(t, c.Err())
		done := doing(t.Context(), c, Remove("a"))
		synctest.Wait()
		c.Close()
		assert.Says(t, <-done, ErrLost, "closed by this side")
		_, err := io.ReadAll(s)
		assert.OK(t, err)
	})
}

// TestRefused: a request that a server might not accept isn't sent, nor are those beside it.
func TestRefused(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		for words, r := range map[string]*Request{
			"a write of 32769 bytes":  Write("h", 0, make([]byte, MaxWrite+1)),
			"a packet of 40013 bytes": Lstat(strings.Repeat("x", 40000)),
			`path "a\x00b" has a NUL`: Rename("a", "a\x00b"),
		} {
			assert.Says(t, c.Do(t.Context(), Remove("a"), r), ErrUnsent, words)
		}
		done := doing(t.Context(), c, Write(strings.Repeat("h", maxHandle), 0, make([]byte, MaxWrite)))
		s.send(status(s.receive().id, OK))
		assert.OK(t, <-done)
	})
}

// TestViolation: an answer that the protocol doesn't allow ends the connection, and the error says why.
func TestViolation(t *testing.T) {
	field := func(s string) func(*Request) { return func(r *Request) { r.string(s) } }
	number := func(v uint32) func(*Request) { return func(r *Request) { r.u32(v) } }
	attrs := func(r *Request) { r.attrs(Attrs{Flags: 15}) }
	for _, c := range []struct {
		name   string
		req    *Request
		answer []byte // to request 1
		words  string
	}{
		{"unknown id", Remove("a"), status(2, OK), "an answer to request 2"},
		{"second answer", Remove("a"), append(status(1, OK), status(1, OK)...), "an answer to request 1"},
		{"wrong type", Remove("a"), handle(1, "h"), "an answer of type 102 to a request of type 13"},
		{"no answer's type", Remove("a"), packet(typeMkdir, 1), "an answer of type 14"},
		{"ok without a handle", Open("a", FlagRead, 0), status(1, OK), "an answer of type 101 to a request of type 3"},
		{"empty handle", Opendir("a"), handle(1, ""), "a handle of 0 bytes"},
		{"long handle", Opendir("a"), handle(1, strings.Repeat("h", 257)), "a handle of 257 bytes"},
		{"too much data", Read("h", 0, 3), packet(typeData, 1, field("1234")), "4 bytes, and 3 were asked for"},
		{"two paths", Realpath("."), packet(typeName, 1, number(2), field("a"), field(""), attrs, field("b"), field(""), attrs), "2 names"},
		{"no path", Realpath("."), packet(typeName, 1, number(0)), "0 names"},
		{"many names", Readdir("h"), packet(typeName, 1, number(1<<32-1)), "truncated"},
		{"many extended", Lstat("a"), packet(typeAttrs, 1, number(hasExtended), number(1<<32-1)), "truncated"},
		{"long field", Readdir("h"), packet(typeName, 1, number(1), number(1<<32-1)), "truncated"},
		{"truncated status", Remove("a"), packet(typeStatus, 1), "truncated"},
		{"truncated message", Remove("a"), packet(typeStatus, 1, number(4), number(9)), "truncated"},
		{"truncated attributes", Lstat("a"), packet(typeAttrs, 1, number(HasSize), number(0)), "truncated"},
		{"truncated statvfs", Space("a"), packet(typeExtendedReply, 1, number(0)), "truncated"},
		{"short packet", Remove("a"), []byte{0, 0, 0, 4, 101, 0, 0, 0}, "a packet of 4 bytes"},
		{"long packet", Remove("a"), []byte{0, 4, 4, 1}, "a packet of 263169 bytes"},
		{"text", Remove("a"), []byte("Connection closed"), "a packet of 1131376238 bytes"},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, client *Client, s *fake) {
				done := doing(t.Context(), client, c.req)
				s.receive()
				go s.Write(c.answer)
				if c.name != "second answer" {
					assert.Says(t, <-done, ErrProtocol, c.words)
				}
				<-client.Done()
				assert.Says(t, client.Err(), ErrProtocol, c.words)
				assert.Is(t, client.Err(), ErrLost)
			})
		})
	}
}

// TestAnswerToUnsent: an answer to a request that isn't sent yet is no success. It ends the connection, and each other Do
// returns too.
func TestAnswerToUnsent(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		first := doing(t.Context(), c, Remove("a")) // the server doesn't read, so its write is under way
		synctest.Wait()
		second := doing(t.Context(), c, Remove("b"))
		synctest.Wait()
		third := doing(t.Context(), c, Remove("c")) // waits for its turn
		synctest.Wait()
		go s.Write(status(2, OK))
		err := <-second
		assert.Says(t, err, ErrProtocol, "an answer to requests that weren't sent")
		assert.Is(t, err, ErrUnsent)
		assert.Is(t, <-third, ErrLost)
		assert.Is(t, <-first, ErrLost)
	})
}

// TestLargest: the largest packet is read.
func TestLargest(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		read := Read("h", 0, 1<<20)
		done := doing(t.Context(), c, read)
		data := bytes.Repeat([]byte("x"), maxPacket-9)
		s.send(packet(typeData, s.receive().id, func(r *Request) { r.string(string(data)) }))
		assert.OK(t, <-done)
		assert.Equal(t, len(read.Data), len(data))
	})
}

// TestShortStatus: a status can be its code alone.
func TestShortStatus(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		r := Remove("a")
		done := doing(t.Context(), c, r)
		s.send(packet(typeStatus, s.receive().id, func(r *Request) { r.u32(2) }))
		assert.OK(t, <-done)
		assert.Says(t, r.Err(), NoSuchFile, "no such file")
	})
}

func TestStatusText(t *testing.T) {
	for want, s := range map[string]Status{
		"no such file":                           {NoSuchFile, "No such file"},
		"end of file":                            {EOF, ""},
		`failure: the server says "disk \"full"`: {Failure, `disk "full`},
		"status 31":                              {31, ""},
		"operation unsupported":                  {OpUnsupported, ""},
		"file already exists":                    {FileExists, "File already exists"},
	} {
		assert.Equal(t, s.err().Error(), want)
	}
	f := &fields{rest: of(0, 0).u32(4).string("a\x1b[2J\r\nb" + strings.Repeat("x", 300)).body}
	msg := f.status().Msg
	assert.That(t, strings.HasPrefix(msg, "a [2J b") && len(msg) <= 203, "%q", msg)
}

// TestAttrs: attributes have the fields of the draft, in its order.
func TestAttrs(t *testing.T) {
	a := Attrs{Flags: HasSize | HasOwner | HasPerm | HasTimes, Size: 1<<32 + 1, UID: 2, GID: 3, Perm: 4, Atime: 5, Mtime: 6}
	raw := []byte{0, 0, 0, 15, 0, 0, 0, 1, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0, 5, 0, 0, 0, 6}
	assert.Equal(t, of(0, 0).attrs(a).body, raw)
	f := &fields{rest: of(0, 0).attrs(a).u32(1).string("name").string("value").string("rest").body}
	f.rest[0] = 0x80 // extended attributes follow
	assert.Equal(t, f.attrs(), a)
	assert.Equal(t, f.string(), "rest")
	assert.That(t, !f.short, "the attributes are truncated")
}
