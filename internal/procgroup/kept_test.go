//go:build linux

package procgroup

import (
	"crypto/rand"
	"net"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/states"
)

// TestKeptConnection: the connection that a lock lasts with ends after the last process of the
// group, although we are killed. A guard that was replaced keeps it too.
func TestKeptConnection(t *testing.T) {
	for _, c := range []struct {
		name    string
		replace bool
	}{{"first guard", false}, {"next guard", true}} {
		t.Run(c.name, func(t *testing.T) {
			path := "@" + rand.Text() // an abstract one: a path of 108 characters can't be bound
			server, err := net.Listen("unix", path)
			if err != nil {
				t.Fatal(err)
			}
			defer server.Close()
			k := newTicker(t)
			p := start(t, concat(self("parent", "-keep", path, "--", "sh", "-c", `"$@" & wait`, "sh"), k.args()))
			conn, err := server.Accept()
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			k.runs()
			if c.replace {
				old := p.current()
				if err := unix.Kill(old, unix.SIGKILL); err != nil {
					t.Fatal(err)
				}
				eventually(t, "another guard", func() bool { p.guard = p.current(); return p.guard != old })
				k.runs() // and has its order
			}
			// The kernel kills the leader with us. A guard that is stopped can't kill the
			// other process before we have looked.
			if err := unix.Kill(p.guard, unix.SIGSTOP); err != nil {
				t.Fatal(err)
			}
			eventually(t, "the guard is stopped", func() bool { return states.AllStopped(p.guard) })
			p.signal(unix.SIGKILL)
			_ = p.cmd.Wait()
			if raw, err := conn.(*net.UnixConn).SyscallConn(); err != nil {
				t.Fatal(err)
			} else if err := raw.Control(func(fd uintptr) {
				if _, _, err := unix.Recvfrom(int(fd), make([]byte, 1), unix.MSG_DONTWAIT); err != unix.EAGAIN {
					t.Errorf("our end has ended the connection: %v", err)
				}
			}); err != nil {
				t.Fatal(err)
			}
			k.runs()
			if err := unix.Kill(p.guard, unix.SIGCONT); err != nil {
				t.Fatal(err)
			}
			if n, err := conn.Read(make([]byte, 1)); n > 0 || err == nil {
				t.Errorf("%d bytes, %v", n, err)
			}
			if n := running(p.pgid); n > 0 {
				t.Errorf("the connection has ended while %d processes of the group run", n)
			}
		})
	}
}
