package sftpwire

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

// starting runs New with a server that sends these bytes, and then keeps the connection open or not.
func starting(t *testing.T, raw string, open bool) (*Client, error) {
	t.Helper()
	ours, theirs := net.Pipe()
	go io.Copy(io.Discard, theirs)
	go func() {
		_, _ = io.WriteString(theirs, raw)
		if !open {
			theirs.Close()
		}
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := New(ctx, ours)
	if err != nil {
		_, closed := ours.Write(nil)
		assert.Is(t, closed, io.ErrClosedPipe, "New has failed, and the connection")
	}
	theirs.Close()
	return c, err
}

// TestBanner: New returns the first line of a text.
func TestBanner(t *testing.T) {
	for raw, want := range map[string]string{
		"This account is currently not available.\r\n":          "This account is currently not available.",
		"\r\n\n  *** Welcome ***\nto\n" + string(versionPacket): "*** Welcome ***",
		"hi":                       "hi",
		"\x1b[31mred\x07\n":        "[31mred",
		strings.Repeat("x", 70000): strings.Repeat("x", 200) + "…",
		"packet too long":          "packet too long",
		"\n":                       "",
	} {
		for _, open := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				_, err := starting(t, raw, open)
				assert.Is(t, err, ErrText, "%q, open %v", raw, open)
				assert.Equal(t, err.Error(), fmt.Sprintf("%v: %q", ErrText, want))
			})
		}
	}
}

// TestNotStarted: New says why a server isn't one.
func TestNotStarted(t *testing.T) {
	for _, c := range []struct {
		raw, words string
		open       bool
		want       error
	}{
		{"", "EOF", false, io.EOF},
		{"", "deadline exceeded", true, context.DeadlineExceeded},
		{string(versionPacket[:7]), "unexpected EOF", false, io.ErrUnexpectedEOF},
		{string(versionPacket[:7]), "deadline exceeded", true, context.DeadlineExceeded},
		{string(packet(typeVersion, 2)), "version 2, want 2 and 3", true, ErrProtocol},
		{string(packet(typeStatus, 3)), "a packet of type 101", true, ErrProtocol},
		{string(packet(typeVersion, 3, func(r *Request) { r.string("half of a pair") })), "a packet", true, ErrProtocol},
		{"\x00\x00\x00\x01\x02", "a packet of 1 bytes", true, ErrProtocol},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, err := starting(t, c.raw, c.open)
			assert.Says(t, err, c.want, c.words, "%q", c.raw)
			assert.Is(t, err, ErrLost, "%q", c.raw)
		})
	}
}

// TestExtensions: the client knows the server's extensions.
func TestExtensions(t *testing.T) {
	inBubble(t, func(t *testing.T, c *Client, _ *fake) {
		v, ok := c.Extension(ExtFsync)
		assert.That(t, ok && v == "1", "%q, %v", v, ok)
		_, ok = c.Extension(ExtHardlink)
		assert.That(t, !ok, "the server has no hardlink")
	})
}

// TestInitUnsent: New fails if a server has answered, but can't be written to.
func TestInitUnsent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ours, theirs := net.Pipe()
		go theirs.Write(versionPacket)
		_, err := New(t.Context(), mute{ours})
		assert.Is(t, err, ErrLost)
		assert.Is(t, err, io.ErrShortWrite)
	})
}

// child is a connection over the pipes of a program.
type child struct {
	io.ReadCloser
	io.WriteCloser
}

func (c child) Close() error {
	c.ReadCloser.Close()
	return c.WriteCloser.Close()
}

// TestPipes: an end of the context ends New, and Close ends a write, also on the pipes of a program
// that neither reads nor answers.
func TestPipes(t *testing.T) {
	connection := func() (c child, requests, answers *os.File) {
		in, answers, err := os.Pipe()
		assert.OK(t, err)
		requests, out, err := os.Pipe()
		assert.OK(t, err)
		t.Cleanup(func() {
			requests.Close()
			answers.Close()
		})
		return child{in, out}, requests, answers
	}
	conn, _, _ := connection()
	ctx, cancel := context.WithCancel(t.Context())
	go cancel()
	_, err := New(ctx, conn)
	assert.Is(t, err, context.Canceled)

	conn, requests, answers := connection()
	_, err = answers.Write(versionPacket)
	assert.OK(t, err)
	c, err := New(t.Context(), conn)
	assert.OK(t, err)
	_, _, err = readPacket(bufio.NewReaderSize(requests, 16), new([]byte))
	assert.OK(t, err)
	var reqs []*Request
	for range 20 { // more than a pipe has room for
		reqs = append(reqs, Write("h", 0, make([]byte, MaxWrite)))
	}
	done := doing(t.Context(), c, reqs...)
	_, err = requests.Read(make([]byte, 100)) // the write has begun
	assert.OK(t, err)
	c.Close()
	assert.Is(t, <-done, ErrLost)
}
