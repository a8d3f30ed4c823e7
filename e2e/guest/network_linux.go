package main

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// connect sets up the interfaces. qemu's user-mode network has the guest at 10.0.2.15, and
// the test's machine at 10.0.2.2, so no route is needed.
func connect() error {
	if err := address("lo", [4]byte{127, 0, 0, 1}, [4]byte{255, 0, 0, 0}); err != nil {
		return err
	}
	for tries := 0; ; tries++ {
		err := address("eth0", [4]byte{10, 0, 2, 15}, [4]byte{255, 255, 255, 0})
		// The driver might look for its card after the module was loaded.
		if !errors.Is(err, unix.ENODEV) || tries == 600 {
			return err
		}
		time.Sleep(100 * time.Millisecond)
	}
}

func address(name string, ip, mask [4]byte) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	for _, set := range []struct {
		what string
		code uint
		fill func(*unix.Ifreq) error
	}{
		{"address", unix.SIOCSIFADDR, func(r *unix.Ifreq) error { return r.SetInet4Addr(ip[:]) }},
		{"netmask", unix.SIOCSIFNETMASK, func(r *unix.Ifreq) error { return r.SetInet4Addr(mask[:]) }},
		{"flags", unix.SIOCSIFFLAGS, func(r *unix.Ifreq) error { r.SetUint16(unix.IFF_UP | unix.IFF_RUNNING); return nil }},
	} {
		r, err := unix.NewIfreq(name)
		if err != nil {
			return err
		}
		if err := set.fill(r); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(fd, set.code, r); err != nil {
			return fmt.Errorf("%s of %s: %w", set.what, name, err)
		}
	}
	return nil
}
