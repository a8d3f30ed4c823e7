//go:build programs

package postgres

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/lockcheck"
	"github.com/repolock/repolock/internal/test/pgtest"
	"github.com/repolock/repolock/internal/test/selfsigned"
	"github.com/repolock/repolock/locking"
)

// secure is the target of a server that has a certificate. root is the file of the certificate to trust, or "".
func secure(t *testing.T, s *pgtest.Server, mode, root string) Target {
	t.Helper()
	to := target(t, s.Address())
	to.SSLMode, to.SSLRootCert = mode, root
	return to
}

// certify gives a server a certificate that it has signed itself, and returns the file.
func certify(t *testing.T, s *pgtest.Server) (path string) {
	t.Helper()
	owner, err := os.Stat(filepath.Join(s.Socket(), "data")) // its user is the server's
	assert.OK(t, err)
	cert, secret := selfsigned.Write(t, s.Socket(), "server")
	for setting, path := range map[string]string{"ssl_cert_file": cert, "ssl_key_file": secret} {
		assert.OK(t, os.Chown(path, int(owner.Sys().(*syscall.Stat_t).Uid), -1))
		s.PSQL("alter system set " + setting + " = '" + path + "'")
	}
	s.PSQL("alter system set ssl = on")
	s.Restart()
	return cert
}

// TestTLS: the session is encrypted as sslmode says, and a certificate that isn't trusted, or is of
// another host, gets no lock.
func TestTLS(t *testing.T) {
	s := pgtest.New(t)
	root := certify(t, s)
	for _, c := range []struct{ name, mode, root, host, refused string }{
		{"required", "require", "", "", ""},
		{"verified", "verify-full", root, "", ""},
		{"not trusted", "verify-full", "", "", "certificate"},
		{"another host", "verify-full", root, "localhost", "certificate"},
	} {
		t.Run(c.name, func(t *testing.T) {
			to := secure(t, s, c.mode, c.root)
			if c.host != "" {
				to.Host = c.host
			}
			b := backend(t, to)
			h, ok, err := b.TryLock(t.Context(), key, ttl)
			if c.refused != "" {
				if ok || err == nil || !strings.Contains(err.Error(), c.refused) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, %v, want one line about %q", ok, err, c.refused)
				}
				return
			}
			assert.Need(t, ok && err == nil, "%v, %v", ok, err)
			if got := s.PSQL("select count(*) from pg_stat_ssl natural join pg_locks where ssl and locktype = 'advisory'"); got != "1" {
				t.Errorf("%s sessions with the lock are encrypted", got)
			}
			lockcheck.Renew(t, b, h)
			lockcheck.Release(t, b, h)
		})
	}
	s.Hosts("local all all trust", "hostssl all all all trust")
	for mode, want := range map[string]bool{"disable": false, "require": true} {
		if _, ok, err := backend(t, secure(t, s, mode, "")).TryLock(t.Context(), key, ttl); ok != want {
			t.Errorf("a server that wants TLS, sslmode %s: %v, %v", mode, ok, err)
		}
	}
}

// duplicate is a second descriptor of a lock's connection, as a guard has it.
func duplicate(t *testing.T, b *Backend, h locking.Handle) (shut func()) {
	t.Helper()
	raw, err := b.Connection(h).SyscallConn()
	assert.OK(t, err)
	fd := -1
	if controlled := raw.Control(func(own uintptr) { fd, err = unix.FcntlInt(own, unix.F_DUPFD_CLOEXEC, 0) }); controlled != nil || err != nil {
		t.Fatal(controlled, err)
	}
	return func() { _ = unix.Close(fd) }
}

// TestConnection: the lock lasts as long as any process has its connection open, and Release frees
// it all the same. So it is over TCP, TLS and the Unix socket.
func TestConnection(t *testing.T) {
	s := pgtest.New(t)
	certify(t, s)
	for name, to := range map[string]Target{
		"tcp": target(t, s.Address()), "tls": secure(t, s, "require", ""), "socket": socket(t, s),
	} {
		t.Run(name, func(t *testing.T) {
			a, b := backend(t, to), at(t, s.Address())
			h := lockcheck.Acquire(t, a, key, ttl)
			shut := duplicate(t, a, h)
			lockcheck.Release(t, a, h)
			next := lockcheck.Acquire(t, b, key, ttl)
			shut()
			lockcheck.Release(t, b, next)
			assert.That(t, a.Connection(h) == nil, "a lock that was released has a connection")

			h = lockcheck.Acquire(t, a, key, ttl)
			shut = duplicate(t, a, h)
			const sentinel = "other" // whose connection has no duplicate
			lockcheck.Acquire(t, a, sentinel, ttl)
			if err := a.Close(); err != nil { // as when the process ends
				t.Error(err)
			}
			eventually(t, "the server notices", func() bool { return otherIsFree(t, b, sentinel) })
			lockcheck.Held(t, b, key)
			shut()
			next = becomesFree(t, b)
			lockcheck.Release(t, b, next)
		})
	}
}

// otherIsFree reports whether the lock of a key is free, and leaves it so.
func otherIsFree(t *testing.T, b *Backend, key string) bool {
	t.Helper()
	h, ok, err := b.TryLock(t.Context(), key, ttl)
	assert.OK(t, err)
	if ok {
		lockcheck.Release(t, b, h)
	}
	return ok
}

// namespace is set in a process that has a network of its own.
const namespace = "REPOLOCK_TEST_NETWORK_OF_ITS_OWN"

// TestVanishedHolder: the server frees the lock of a holder that is silent, not before its ttl
// is over. It skips only if the system gives no network namespace to a user without privileges.
func TestVanishedHolder(t *testing.T) {
	if os.Getenv(namespace) != "" {
		vanish(t)
		return
	}
	c := exec.Command(os.Args[0], "-test.run=^TestVanishedHolder$", "-test.v", "-test.count=1")
	c.Env = append(os.Environ(), namespace+"=1")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET, Pdeathsig: syscall.SIGKILL}
	if uid, gid := os.Getuid(), os.Getgid(); uid != 0 {
		c.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		c.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: uid, HostID: uid, Size: 1}}
		c.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: gid, HostID: gid, Size: 1}}
		c.SysProcAttr.AmbientCaps = []uintptr{unix.CAP_NET_ADMIN}
		if exec.Command("unshare", "--user", "--net", "true").Run() != nil {
			t.Skip("without privileges this system allows no network namespace")
		}
	}
	out, err := c.CombinedOutput()
	t.Logf("%s", out)
	assert.Is(t, err, nil)
}

// vanish cuts the network while a lock is held. It asks the server by its socket, which isn't cut.
func vanish(t *testing.T) {
	network(t, true)
	s := pgtest.New(t)
	const lasts = 6 * time.Second
	a := at(t, s.Address())
	h := lockcheck.Acquire(t, a, key, lasts)
	sent := time.Now() // before the last packet that the server gets
	lockcheck.Renew(t, a, h)
	network(t, false)
	eventually(t, "the lock is free", func() bool {
		return s.PSQL("select count(*) from pg_locks where locktype = 'advisory'") == "0"
	})
	if took := time.Since(sent); took < lasts {
		t.Errorf("free after %v of %v", took, lasts)
	} else {
		t.Logf("free %v after the last renewal was sent, of a ttl of %v", took, lasts)
	}
	closes(t, "Watch", a.Watch(h)) // our own system gives up as well
	isLost(t, a.Renew(t.Context(), h), "")
}

// network switches the loopback interface on or off.
func network(t *testing.T, on bool) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	assert.OK(t, err)
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	assert.OK(t, err)
	var flags uint16
	if on {
		flags = unix.IFF_UP | unix.IFF_RUNNING
	}
	lo.SetUint16(flags)
	assert.OK(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo))
}
