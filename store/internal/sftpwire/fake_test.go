package sftpwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"net"
	"testing"
	"testing/synctest"

	"github.com/repolock/repolock/internal/test/assert"
)

// fake is the server's end of a connection: the test answers for the server.
type fake struct {
	t  *testing.T
	in *bufio.Reader
	net.Conn
}

// sent is a packet of the client.
type sent struct {
	kind byte
	id   uint32
	fields
}

// versionPacket is the first packet of a server with one extension.
var versionPacket = packet(typeVersion, version, func(r *Request) { r.string(ExtFsync).string("1") })

// packet returns a packet of a server. Its number is an id or a version.
func packet(kind byte, number uint32, rest ...func(*Request)) []byte {
	r := of(0, 0).u32(number)
	for _, add := range rest {
		add(r)
	}
	b := binary.BigEndian.AppendUint32(nil, uint32(1+len(r.body)))
	return append(append(b, kind), r.body...)
}

func status(id uint32, code Code) []byte {
	return packet(typeStatus, id, func(r *Request) { r.u32(uint32(code)).string("so it is").string("en") })
}

func handle(id uint32, h string) []byte {
	return packet(typeHandle, id, func(r *Request) { r.string(h) })
}

// pair returns a client and its server.
func pair(t *testing.T) (*Client, *fake) {
	t.Helper()
	ours, theirs := net.Pipe()
	s := &fake{t, bufio.NewReader(theirs), theirs}
	go func() {
		s.receive()
		s.send(versionPacket)
	}()
	c, err := New(t.Context(), ours)
	assert.OK(t, err)
	t.Cleanup(func() {
		c.Close()
		s.Close()
	})
	return c, s
}

// receive returns the next packet. INIT has its version as the id.
func (s *fake) receive() sent {
	var buf []byte
	kind, f, err := readPacket(s.in, &buf)
	if err != nil {
		s.t.Errorf("the server receives: %v", err)
		return sent{}
	}
	return sent{kind, f.u32(), *f}
}

func (s *fake) send(packets ...[]byte) {
	for _, p := range packets {
		if _, err := s.Write(p); err != nil {
			s.t.Errorf("the server sends: %v", err)
		}
	}
}

// doing runs Do, and returns the channel of its error.
func doing(ctx context.Context, c *Client, reqs ...*Request) chan error {
	done := make(chan error, 1)
	go func() { done <- c.Do(ctx, reqs...) }()
	return done
}

// inBubble runs a test in synctest time.
func inBubble(t *testing.T, test func(t *testing.T, c *Client, s *fake)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		c, s := pair(t)
		test(t, c, s)
	})
}
