package sftpwire

import (
	"bufio"
	"context"
	"errors"
	"io"
	"net"
	"testing"

	"github.com/repolock/repolock/internal/test/assert"
)

// everyRequest returns one request of each kind, with the ids from 1.
func everyRequest() []*Request {
	return []*Request{
		Open("a", FlagRead, 0), Close("h"), Read("h", 0, 100), Write("h", 0, []byte("x")), Lstat("a"), Stat("a"), Fstat("h"),
		Setstat("a", Attrs{Flags: HasTimes}), Fsetstat("h", Attrs{Flags: HasOwner}), Opendir("d"), Readdir("h"), Remove("a"),
		Mkdir("d", 0o700), Rmdir("d"), Realpath("."), Rename("a", "b"), PosixRename("a", "b"), Hardlink("a", "b"), Fsync("h"), Space("."),
	}
}

// FuzzAnswers: whatever a server sends, New and Do return, and an answer that was accepted is whole.
func FuzzAnswers(f *testing.F) {
	var whole []byte
	attrs := func(r *Request) { r.attrs(Attrs{Flags: HasSize | HasOwner | HasPerm | HasTimes, Size: 1 << 40}) }
	for i, r := range everyRequest() {
		id := uint32(i + 1)
		answer := status(id, Failure)
		switch r.wanted {
		case typeHandle:
			answer = handle(id, "h")
		case typeData:
			answer = packet(typeData, id, func(r *Request) { r.string("data") })
		case typeAttrs:
			answer = packet(typeAttrs, id, attrs)
		case typeName:
			answer = packet(typeName, id, func(r *Request) { r.u32(1).string("name").string("long name") }, attrs)
		case typeExtendedReply:
			answer = packet(typeExtendedReply, id, func(r *Request) { r.string(string(make([]byte, 84))) })
		}
		whole = append(whole, answer...)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-50])
	f.Add(append([]byte(nil), versionPacket...))
	f.Add([]byte("This account is currently not available.\n"))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, raw []byte) {
		ctx, cancel := context.WithTimeout(t.Context(), assert.Hang)
		defer cancel()
		c, err := New(ctx, serving(nil, raw))
		if err == nil {
			c.Close()
		}
		assert.That(t, err == nil || errors.Is(err, ErrLost) || errors.Is(err, ErrText), "%v", err)

		c, err = New(ctx, serving(versionPacket, raw))
		assert.OK(t, err)
		reqs := everyRequest()
		err = c.Do(ctx, reqs...)
		assert.That(t, err == nil || errors.Is(err, ErrLost), "%v", err)
		for _, r := range reqs {
			assert.That(t, err != nil || r.Answered, "%+v isn't answered, and Do returned no error", r)
			assert.That(t, len(r.Data) <= 100 && len(r.Status.Msg) <= 203, "%+v", r)
		}
		c.Close()
		assert.OK(t, ctx.Err())
	})
}

// serving returns a connection to a server that sends start, receives INIT and one packet more if
// there is a start, and then sends raw and ends.
func serving(start, raw []byte) net.Conn {
	ours, theirs := net.Pipe()
	go func() {
		defer theirs.Close()
		in := bufio.NewReader(theirs)
		_, _, _ = readPacket(in, new([]byte))
		if start != nil {
			_, _ = theirs.Write(start)
			_, _, _ = readPacket(in, new([]byte))
		}
		go io.Copy(io.Discard, in)
		_, _ = theirs.Write(raw)
	}()
	return ours
}
