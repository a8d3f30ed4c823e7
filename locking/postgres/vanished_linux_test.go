//go:build programs

package postgres_test

import (
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/repolock/repolock/internal/test/pgtest"
)

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
	if err != nil {
		t.Error(err)
	}
}

// vanish cuts the network while a lock is held. It asks the server by its socket, which isn't cut.
func vanish(t *testing.T) {
	network(t, true)
	s := pgtest.New(t)
	const lasts = 6 * time.Second
	a := at(t, s.Address())
	h, ok, err := a.TryLock(t.Context(), key, lasts)
	if !ok || err != nil {
		t.Fatal(ok, err)
	}
	sent := time.Now() // before the last packet that the server gets
	if err := a.Renew(t.Context(), h); err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		t.Fatal(err)
	}
	var flags uint16
	if on {
		flags = unix.IFF_UP | unix.IFF_RUNNING
	}
	lo.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo); err != nil {
		t.Fatal(err)
	}
}
