//go:build unix

package sftp

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"net"
	"path/filepath"
	"slices"
	"testing"
	"testing/synctest"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/store"
	"github.com/repolock/repolock/store/internal/sftpwire"
)

// numbered is between a server of github.com/pkg/sftp and its client. It gives handles as OpenSSH's server does, and
// passes one request after another.
type numbered struct {
	given map[string]string // the server's handles, by ours
	free  []uint32
	seen  func(req request, answer []byte) // called for each answer
}

// withHandle are the requests whose first field is a handle.
var withHandle = []byte{typeClose, 5, typeWrite, typeFstat, typeFsetstat, typeReaddir}

func (n *numbered) serve(client, server net.Conn) {
	defer client.Close()
	defer server.Close()
	in, answers := bufio.NewReader(client), bufio.NewReader(server)
	for {
		p, err := readPacket(in)
		if err != nil {
			return
		}
		kind, ours := p[4], ""
		req := request{kind: kind, body: string(p[9:])}
		if slices.Contains(withHandle, kind) {
			ours = req.path()
			rest := string(p[9+4+len(ours):])
			p = reply(kind, binary.BigEndian.Uint32(p[5:]), field(n.given[ours])+rest)
		}
		if _, err := server.Write(p); err != nil {
			return
		}
		a, err := readPacket(answers)
		if err != nil {
			return
		}
		if a[4] == 102 {
			a = reply(102, binary.BigEndian.Uint32(a[5:]), field(n.open(string(a[13:]))))
		}
		if kind == typeClose && n.given[ours] != "" {
			delete(n.given, ours)
			n.free = append(n.free, binary.BigEndian.Uint32([]byte(ours)))
		}
		if n.seen != nil {
			n.seen(req, a)
		}
		if _, err := client.Write(a); err != nil {
			return
		}
	}
}

func (n *numbered) open(theirs string) string {
	next := uint32(len(n.given))
	if last := len(n.free) - 1; last >= 0 {
		next, n.free = n.free[last], n.free[:last]
	}
	ours := string(binary.BigEndian.AppendUint32(nil, next))
	n.given[ours] = theirs
	return ours
}

// TestQuickScans: on a server whose handles can be guessed, each directory is read in the flight that opens it, twice.
// So no flight between the two can hide a name, as btrfs does if the file is replaced there.
func TestQuickScans(t *testing.T) {
	for _, c := range []struct {
		flags   []string // their folders are there
		more    int      // other flags in a folder
		flights int
	}{
		{[]string{"index/lock.exclusive", "index/lock.intent/a", "index/lock.shared/a"}, 0, 2},
		{[]string{"index/lock.exclusive"}, 0, 2},
		{[]string{"index/lock.shared/a"}, 0, 2},
		{[]string{"index/lock.intent/a"}, 0, 3}, // its handle is guessed wrong, because lock.shared is missing
		{[]string{"index/lock.intent/a", "index/lock.shared/a"}, 600, 10},
	} {
		synctest.Test(t, func(t *testing.T) {
			scans := &numbered{given: map[string]string{}}
			r := &relay{numbered: scans}
			s := r.on(t, repository(t, 0o700))
			put(t, s, c.flags...)
			for i := range c.more {
				put(t, s, fmt.Sprintf("index/lock.shared/%03d", i))
			}
			synctest.Wait()
			last, opened, scanned := "", int32(0), map[string]int{}
			scans.seen = func(req request, answer []byte) {
				switch {
				case req.kind == typeOpendir:
					last, opened = filepath.Base(req.path()), r.flights.Load()
				case req.kind == typeReaddir && answer[4] == typeStatus && binary.BigEndian.Uint32(answer[9:]) == uint32(sftpwire.EOF) && opened == r.flights.Load():
					scanned[last]++
					opened = 0 // the next reads show the end, too
				}
			}
			before := r.flights.Load()
			p, err := s.List(t.Context(), "index/lock.", "")
			assert.OK(t, err)
			assert.Equal(t, len(p.Objects), len(c.flags)+c.more)
			for _, flag := range c.flags {
				assert.That(t, scanned[filepath.Base(filepath.Dir(flag))] >= 2, "%v: quick scans: %v", c.flags, scanned)
			}
			synctest.Wait()
			assert.Equal(t, int(r.flights.Load()-before), c.flights, fmt.Sprint("flights of ", c.flags))
		})
	}
}

// TestMisreadListing: a listing fails if a read with a wrong handle was answered, because that read can have taken names
// from a scan. The next one guesses no more.
func TestMisreadListing(t *testing.T) {
	r := &relay{numbered: &numbered{given: map[string]string{}}}
	s := r.on(t, repository(t, 0o700))
	put(t, s, "index/lock.exclusive", "index/lock.shared/a")
	r.edits(func(p []byte) []byte {
		if p[4] == typeStatus && binary.BigEndian.Uint32(p[9:]) == uint32(sftpwire.Failure) { // for the folder of intents
			return listed(binary.BigEndian.Uint32(p[5:]), nil)
		}
		return p
	})
	_, err := s.List(t.Context(), "index/lock.", "")
	assert.Is(t, err, store.ErrListing)
	p, err := s.List(t.Context(), "index/lock.", "")
	assert.OK(t, err)
	assert.Equal(t, keys(p), []string{"index/lock.exclusive", "index/lock.shared/a"})
}
