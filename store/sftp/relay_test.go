//go:build unix

package sftp

import (
	"bufio"
	"context"
	"encoding/binary"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	pkgsftp "github.com/pkg/sftp"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// The types of packets.
const (
	typeVersion, typeOpen, typeClose, typeRead, typeWrite, typeLstat, typeFstat, typeFsetstat    = 2, 3, 4, 5, 6, 7, 8, 10
	typeOpendir, typeReaddir, typeRemove, typeMkdir, typeRmdir, typeStat, typeRename, typeStatus = 11, 12, 13, 14, 15, 17, 18, 101
	typeName, typeAttrs, typeExtended, typeExtendedReply                                         = 104, 105, 200, 201
)

// request is a packet of the client.
type request struct {
	kind byte
	id   uint32
	body string // after the id
}

// path returns the first field, which is a path, a handle, or an extension's name.
func (r request) path() string {
	n := binary.BigEndian.Uint32([]byte(r.body))
	return r.body[4 : 4+n]
}

// relay is a connection to a server of github.com/pkg/sftp. It lets the test answer in the server's place.
type relay struct {
	dials   atomic.Int32
	flights atomic.Int32                 // writes of the client, without those that only close handles
	answer  func(request) []byte         // a packet in place of the server's answer, none if it is empty, nil for the server's own
	edit    func(packet []byte) []byte   // changes a packet of the server
	fresh   bool                         // the URL has listings=fresh
	ended   atomic.Pointer[func() error] // ends the newest connection

	trip     time.Duration // of a request and its answer
	numbered *numbered     // gives handles as OpenSSH's server does, unless it is nil

	mu   sync.Mutex
	kind map[byte]int // the requests so far
}

// on returns a store of a directory through the relay, which is connected. A later change of answer or edit comes
// before the next request.
func (r *relay) on(t *testing.T, root string) *Store {
	t.Helper()
	r.kind = map[byte]int{}
	s := opened(func(ctx context.Context) (*conn, error) { return r.dial(ctx, root) })
	<-s.dialed.over
	t.Cleanup(func() { assert.OK(t, s.Close()) })
	return s
}

// answers sets answer, and edits sets edit. The client can send a request that it doesn't wait for, such as the last
// CLOSE, at any time.
func (r *relay) answers(f func(request) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.answer = f
}

func (r *relay) edits(f func(packet []byte) []byte) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.edit = f
}

// seen returns the number of requests of a type.
func (r *relay) seen(kind byte) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.kind[kind]
}

func (r *relay) dial(ctx context.Context, root string) (*conn, error) {
	r.dials.Add(1)
	client, theirs := net.Pipe()
	ours, served := net.Pipe()
	if r.numbered != nil {
		var theirs, to net.Conn = served, nil
		to, served = net.Pipe()
		go r.numbered.serve(theirs, to)
	}
	server, err := pkgsftp.NewServer(served)
	if err != nil {
		return nil, err
	}
	ended := theirs.Close
	r.ended.Store(&ended)
	var sending sync.Mutex
	send := func(p []byte) {
		sending.Lock()
		defer sending.Unlock()
		_, _ = theirs.Write(p)
	}
	go func() { _ = server.Serve(); served.Close() }()
	go func() {
		defer ours.Close()
		for in := bufio.NewReader(theirs); ; {
			p, err := readPacket(in)
			if err != nil {
				return
			}
			req := request{kind: p[4], id: binary.BigEndian.Uint32(p[5:]), body: string(p[9:])}
			r.mu.Lock()
			r.kind[req.kind]++
			answer := r.answer
			r.mu.Unlock()
			if answer != nil {
				if a := answer(req); a != nil {
					if len(a) > 0 {
						go send(a) // beside the next request
					}
					continue
				}
			}
			if _, err := ours.Write(p); err != nil {
				return
			}
		}
	}()
	go func() {
		defer theirs.Close()
		for in := bufio.NewReader(ours); ; {
			p, err := readPacket(in)
			if err != nil {
				return
			}
			r.mu.Lock()
			edit := r.edit
			r.mu.Unlock()
			if edit != nil {
				p = edit(p)
			}
			send(p)
		}
	}()
	return start(ctx, delayed(counted{client, &r.flights}, r.trip/2), target{root: root, fresh: r.fresh}, func(context.Context) error { return nil })
}

func readPacket(in *bufio.Reader) ([]byte, error) {
	head, err := in.Peek(4)
	if err != nil {
		return nil, err
	}
	p := make([]byte, 4+binary.BigEndian.Uint32(head))
	_, err = io.ReadFull(in, p)
	return p, err
}

type counted struct {
	net.Conn
	n *atomic.Int32
}

func (c counted) Write(b []byte) (int, error) {
	for rest := b; len(rest) > 0; rest = rest[4+binary.BigEndian.Uint32(rest):] {
		if rest[4] != typeClose {
			c.n.Add(1)
			break
		}
	}
	return c.Conn.Write(b)
}

// delayed delays what is written to a connection, and what is read from it.
func delayed(c io.ReadWriteCloser, by time.Duration) io.ReadWriteCloser {
	if by == 0 {
		return c
	}
	ours, theirs := net.Pipe()
	go pass(c, theirs, by)
	go pass(theirs, c, by)
	return ours
}

func pass(to, from io.ReadWriteCloser, by time.Duration) {
	type chunk struct {
		bytes []byte
		due   time.Time
	}
	chunks := make(chan chunk, 1000)
	go func() {
		defer to.Close()
		for c := range chunks {
			time.Sleep(time.Until(c.due))
			if _, err := to.Write(c.bytes); err != nil {
				from.Close()
			}
		}
	}()
	for {
		b := make([]byte, 1<<16)
		n, err := from.Read(b)
		if err != nil {
			close(chunks)
			return
		}
		chunks <- chunk{b[:n], time.Now().Add(by)}
	}
}

func u32(n int) string       { return string(binary.BigEndian.AppendUint32(nil, uint32(n))) }
func field(s string) string  { return u32(len(s)) + s }
func perm(mode int) string   { return u32(sftpwire.HasPerm) + u32(mode) }
func bare(raw string) []byte { return []byte(field(raw)) }

// reply returns a packet of the server.
func reply(kind byte, id uint32, body string) []byte {
	return bare(string([]byte{kind}) + u32(int(id)) + body)
}

func status(id uint32, code sftpwire.Code) []byte {
	return reply(typeStatus, id, u32(int(code))+field("so it is")+field(""))
}

// refuse answers the requests of some types with a status.
func refuse(code sftpwire.Code, kinds ...byte) func(request) []byte {
	return func(r request) []byte {
		if slices.Contains(kinds, r.kind) {
			return status(r.id, code)
		}
		return nil
	}
}

// listed returns the answer to a Readdir: names, each with attributes.
func listed(id uint32, names map[string]string) []byte {
	body := u32(len(names))
	for name, attrs := range names {
		body += field(name) + field("") + attrs
	}
	return reply(typeName, id, body)
}

// repository returns an empty directory with a mode.
func repository(t *testing.T, mode os.FileMode) string {
	t.Helper()
	root := t.TempDir()
	assert.OK(t, os.Chmod(root, mode))
	return root
}

func put(t *testing.T, s *Store, keys ...string) {
	t.Helper()
	for _, key := range keys {
		assert.Is(t, assert.Err(s.Put(t.Context(), key, []byte("body of "+key), store.PutOptions{})), nil, "%s", key)
	}
}

// has checks all files and folders of a repository. A folder has a slash at its end.
func has(t *testing.T, root string, want ...string) {
	t.Helper()
	var got []string
	assert.OK(t, filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		name, _ := strings.CutPrefix(path, root+"/")
		if err == nil && path != root {
			if d.IsDir() {
				name += "/"
			}
			got = append(got, name)
		}
		return err
	}))
	assert.Equal(t, got, want)
}

// keys returns the keys of a page.
func keys(p store.Page) (all []string) {
	for _, o := range p.Objects {
		all = append(all, o.Key)
	}
	return all
}
