package sftpwire

import (
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/repolock/repolock/internal/test/assert"
)

// named is the answer to a Readdir.
func named(id uint32, names ...string) []byte {
	return packet(typeName, id, func(r *Request) {
		r.u32(uint32(len(names)))
		for _, n := range names {
			r.string(n).string("").attrs(Attrs{})
		}
	})
}

// gets sends a request, and answers it.
func gets(t *testing.T, c *Client, s *fake, r *Request, answer func(id uint32) []byte) {
	t.Helper()
	done := doing(t.Context(), c, r)
	s.send(answer(s.receive().id))
	assert.OK(t, <-done)
}

func with(h uint32) func(id uint32) []byte {
	return func(id uint32) []byte { return handle(id, name(h)) }
}

func succeeds(id uint32) []byte { return status(id, OK) }

// TestGuess: the client guesses the handle that OpenSSH's server gives next: the one that was closed last, or else the
// next number. It counts the flights under way, in the order in which they are sent.
func TestGuess(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		reads := func(want uint32) {
			t.Helper()
			open := Opendir("d")
			read := ReaddirOf(open)
			done := doing(t.Context(), c, open, read)
			a, b := s.receive(), s.receive()
			assert.Equal(t, a.string(), "d")
			assert.Equal(t, b.kind, typeReaddir)
			assert.Equal(t, b.string(), name(want))
			s.send(handle(a.id, name(want)), named(b.id, "x"))
			assert.OK(t, <-done)
			assert.Equal(t, read.Names, []Entry{{Name: "x"}})
		}
		assert.That(t, !c.Guesses(), "nothing is known of the server")
		gets(t, c, s, Open("a", FlagRead, 0), with(0))
		assert.That(t, c.Guesses(), "it guesses after the first handle")
		reads(1)
		gets(t, c, s, Open("b", FlagRead, 0), with(2))
		gets(t, c, s, Close(name(1)), succeeds)
		gets(t, c, s, Close(name(0)), succeeds)
		reads(0)
		reads(1)
		reads(3)

		first := doing(t.Context(), c, Close(name(1)), Open("c", FlagRead, 0), Open("d", FlagRead, 0))
		p, q, r := s.receive(), s.receive(), s.receive()
		synctest.Wait()
		open := Opendir("d")
		read := ReaddirOf(open)
		second := doing(t.Context(), c, open, read)
		a, b := s.receive(), s.receive()
		assert.Equal(t, b.string(), name(5))
		s.send(succeeds(p.id), handle(q.id, name(1)), handle(r.id, name(4)), handle(a.id, name(5)), named(b.id))
		assert.OK(t, <-first)
		assert.OK(t, <-second)
		assert.That(t, read.Answered && c.Misread() == 0, "the answer of a right guess is dropped")
	})
}

// TestWrongGuess: a read with a wrong handle has no answer. If the server answers it with names, these are missing in
// another directory's, and the client guesses no more.
func TestWrongGuess(t *testing.T) {
	for names, misread := range map[bool]int{false: 0, true: 1} {
		inBubble(t, func(t *testing.T, c *Client, s *fake) {
			gets(t, c, s, Open("a", FlagRead, 0), with(0))
			missing, open := Opendir("b"), Opendir("c")
			read := ReaddirOf(open)
			done := doing(t.Context(), c, missing, open, read)
			a, b, r := s.receive(), s.receive(), s.receive()
			assert.Equal(t, r.string(), name(2))
			answer := status(r.id, Failure)
			if names {
				answer = named(r.id, "x")
			}
			s.send(status(a.id, NoSuchFile), handle(b.id, name(1)), answer)
			assert.OK(t, <-done)
			assert.That(t, !read.Answered, "the answer to a wrong guess counts")
			assert.Equal(t, open.Handle, name(1))
			assert.Equal(t, c.Misread(), misread)
			assert.Equal(t, c.Guesses(), !names)
		})
	}
}

// TestWrongGuessOfFile: a read and a look with a wrong handle have no answer, but take nothing from another file.
func TestWrongGuessOfFile(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, s *fake) {
		gets(t, c, s, Open("a", FlagRead, 0), with(0))
		missing, open := Open("b", FlagRead, 0), Open("c", FlagRead, 0)
		read, stat := ReadOf(open, 5, 10), FstatOf(open)
		done := doing(t.Context(), c, missing, open, read, stat)
		a, b, r, l := s.receive(), s.receive(), s.receive(), s.receive()
		assert.Equal(t, r.string(), name(2))
		assert.Equal(t, []uint32{r.u32(), r.u32(), r.u32()}, []uint32{0, 5, 10})
		assert.Equal(t, l.string(), name(2))
		data := packet(typeData, r.id, func(p *Request) { p.string("x") })
		s.send(status(a.id, NoSuchFile), handle(b.id, name(1)), data, status(l.id, Failure))
		assert.OK(t, <-done)
		assert.That(t, !read.Answered && !stat.Answered, "the answer to a wrong guess counts")
		assert.Equal(t, c.Misread(), 0)
		assert.That(t, !c.Guesses(), "it guesses on")
	})
}

// TestOtherHandles: the client doesn't guess the handles of a server that gives other ones than OpenSSH's.
func TestOtherHandles(t *testing.T) {
	for n, answers := range [][]string{{"1"}, {name(1)}, {name(0), name(2)}, {name(0), "", name(1)}} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			inBubble(t, func(t *testing.T, c *Client, s *fake) {
				for _, a := range answers {
					if a == "" { // close the first, so that its number is the next
						gets(t, c, s, Close(name(0)), succeeds)
						continue
					}
					gets(t, c, s, Opendir("a"), func(id uint32) []byte { return handle(id, a) })
				}
				assert.That(t, !c.Guesses(), "it guesses")
				open := Opendir("b")
				read := ReaddirOf(open)
				done := doing(t.Context(), c, open, read)
				p := s.receive()
				s.send(handle(p.id, "h"))
				assert.OK(t, <-done)
				assert.That(t, !read.Answered, "a read without a handle has an answer")
			})
		})
	}
}
