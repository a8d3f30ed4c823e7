package sftpwire

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"sync"

	"github.com/repolock/repolock/internal/text"
)

// Client is an SFTP client on one connection. Its methods can be called concurrently.
type Client struct {
	rw         io.ReadWriteCloser
	extensions map[string]string
	out        chan []byte   // packets of a flight, for the writer; unbuffered: until the writer takes a flight, nothing of it is sent
	done       chan struct{} // closed at the end of the connection
	turn       chan struct{} // has room for the one flight that has its numbers and isn't sent; so flights are sent in the order of their numbers

	mu      sync.Mutex
	err     error // why the connection has ended
	last    uint32
	pending map[uint32]pending // the requests without an answer, by id
	handles handles
	misread int // see Misread
}

// flight is the state of the requests that one Do has sent.
type flight struct {
	unanswered int
	answered   chan struct{} // closed when all requests are answered
	abandoned  bool          // Do has returned without all answers
}

type pending struct {
	*Request
	*flight
}

// New starts SFTP on a connection: it sends INIT and reads VERSION. It returns an [ErrText] if the server answers with
// text.
//
// The client closes the connection when it ends, and if New fails. Close can be called more than once, and must end a
// Read or a Write that is under way.
func New(ctx context.Context, rw io.ReadWriteCloser) (*Client, error) {
	c := &Client{rw: rw, out: make(chan []byte), done: make(chan struct{}), turn: make(chan struct{}, 1), pending: map[uint32]pending{}}
	stop := context.AfterFunc(ctx, func() { rw.Close() })
	in := bufio.NewReader(rw)
	err := c.start(in)
	if !stop() && !errors.Is(err, ErrText) {
		err = ctx.Err()
	}
	if err != nil {
		rw.Close()
		return nil, lost(err)
	}
	go c.read(in)
	go c.write()
	return c, nil
}

func (c *Client) start(in *bufio.Reader) error {
	sent := make(chan error, 1)
	go func() { // read even if the write fails: a server that has ended might have sent a text that explains why
		_, err := c.rw.Write([]byte{0, 0, 0, minPacket, typeInit, 0, 0, 0, version})
		sent <- err
	}()
	if first, err := in.Peek(1); err != nil {
		return err
	} else if first[0] != 0 { // no packet is that long
		return fmt.Errorf("%w: %q", ErrText, firstLine(in))
	}
	kind, f, err := readPacket(in, new([]byte))
	if err != nil {
		return err
	}
	v := f.u32()
	c.extensions = map[string]string{}
	for len(f.rest) > 0 {
		name, version := f.string(), f.string()
		c.extensions[name] = version
	}
	if kind != typeVersion || v != version || f.short {
		return violation("a packet of type %d and version %d, want %d and %d", kind, v, typeVersion, version)
	}
	return <-sent
}

// firstLine returns the first line that isn't blank, or as much of it as can be read.
func firstLine(in *bufio.Reader) (line string) {
	for more := true; more && line == ""; {
		raw, err := in.ReadSlice('\n')
		line, more = text.Line(string(raw)), err == nil
	}
	return line
}

// Extension returns the version of an extension. ok is false if the server doesn't have the extension.
func (c *Client) Extension(name string) (version string, ok bool) {
	version, ok = c.extensions[name]
	return version, ok
}

// Done returns a channel that is closed when the connection has ended.
func (c *Client) Done() <-chan struct{} { return c.done }

// Err returns why the connection has ended, as an ErrLost, or nil if it is open.
func (c *Client) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// Close ends the connection.
func (c *Client) Close() { c.end(errors.New("closed by this side")) }

func (c *Client) end(cause error) {
	c.mu.Lock()
	if c.err == nil {
		c.err = lost(cause)
		close(c.done)
	}
	c.mu.Unlock()
	c.rw.Close()
}

// Do sends the requests in one write, in order, and waits until all are answered. If the server refuses a request, Do
// still returns nil: see Answer.Err.
//
// If the context or the connection ends first, Do returns an error. Then a request might have an answer, or the server
// might have processed it, or might process it later. After an ErrUnsent nothing was sent.
//
// Whatever Do returns, the caller must not use a handle again that it has passed in a Close, because the server can
// give the handle to another file. If Do sends nothing, the client closes the handle later. After an error the client
// also closes the handles that the requests opened, and removes them from the requests.
func (c *Client) Do(ctx context.Context, reqs ...*Request) error {
	if len(reqs) == 0 {
		return nil
	}
	f := &flight{unanswered: len(reqs), answered: make(chan struct{})}
	out := c.out // nil once the writer has the packets
	packets, err := c.pack(ctx, f, reqs)
	for err == nil {
		select {
		case out <- packets:
			out = nil
			<-c.turn
		case <-f.answered:
			if out == nil {
				return nil
			}
			c.end(violation("an answer to requests that weren't sent"))
			err = c.Err()
		case <-ctx.Done():
			err = ctx.Err()
		case <-c.done:
			err = c.Err()
		}
	}
	if c.abandon(f, reqs, out == nil) {
		return nil
	}
	if out != nil {
		if packets != nil {
			<-c.turn
		}
		return fmt.Errorf("%w: %w", ErrUnsent, err)
	}
	return err
}

// pack waits for its turn, gives the requests their numbers, and returns their packets. Without packets it isn't the
// turn of this flight. With packets and an error the flight can't be sent.
func (c *Client) pack(ctx context.Context, f *flight, reqs []*Request) (packets []byte, err error) {
	for _, r := range reqs {
		r.Answer = Answer{}
	}
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	select {
	case c.turn <- struct{}{}:
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-c.done:
		return nil, c.Err()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.guess(reqs)
	packets = []byte{}
	for _, r := range reqs {
		n := minPacket + len(r.body)
		switch {
		case r.of != nil && len(r.body) == 0:
			f.unanswered-- // the open of its handle is in the same flight, so other answers come
			continue
		case r.err != nil:
			err = r.err
		case 4+n > maxSent:
			err = fmt.Errorf("a packet of %d bytes: at most %d are allowed", 4+n, maxSent)
		}
		for c.last++; c.pending[c.last].Request != nil; c.last++ {
		}
		c.pending[c.last] = pending{r, f}
		packets = append(binary.BigEndian.AppendUint32(packets, uint32(n)), r.kind)
		packets = append(binary.BigEndian.AppendUint32(packets, c.last), r.body...)
	}
	return packets, err
}

// abandon ends the wait of a Do. The reader then drops the answers that come later. abandon reports whether the requests
// were sent, and all answers have already come.
func (c *Client) abandon(f *flight, reqs []*Request, sent bool) (complete bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent && f.unanswered == 0 {
		return true
	}
	f.abandoned = true
	if !sent {
		maps.DeleteFunc(c.pending, func(_ uint32, p pending) bool { return p.flight == f })
	}
	for _, r := range reqs {
		if r.kind == typeClose && !sent {
			c.discard(string(r.body[4:]))
		}
		c.discard(r.Handle)
		r.Handle = ""
	}
	return false
}

// discard closes a handle without waiting for the answer. It can't wait, because the server might not read until the
// reader has read its answers.
func (c *Client) discard(handle string) {
	if handle != "" && c.err == nil {
		go func() { _ = c.Do(context.Background(), Close(handle)) }()
	}
}

func (c *Client) write() {
	for {
		select {
		case packets := <-c.out:
			if _, err := c.rw.Write(packets); err != nil {
				c.end(err)
			}
		case <-c.done:
			return
		}
	}
}

func (c *Client) read(in *bufio.Reader) {
	var buf []byte
	kind, f, err := readPacket(in, &buf)
	for err == nil {
		if err = c.answer(kind, f); err == nil {
			kind, f, err = readPacket(in, &buf)
		}
	}
	c.end(err)
}

// answer stores an answer in its request.
func (c *Client) answer(kind byte, f *fields) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	id := f.u32()
	p, ok := c.pending[id]
	if !ok {
		return violation("an answer to request %d, which isn't waiting for one", id)
	}
	a, err := p.answer(kind, f)
	if err != nil {
		return err
	}
	delete(c.pending, id)
	c.handles.answered(p.Request, a)
	if p.abandoned {
		c.discard(a.Handle)
		return nil
	}
	if c.checked(p.Request, a) {
		p.Request.Answer = a
	}
	if p.unanswered--; p.unanswered == 0 {
		close(p.answered)
	}
	return nil
}
