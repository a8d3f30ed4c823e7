// Command guest is the first process of the virtual machine that TestPausedGuest starts.
// It also runs repolock there, and is the command under the lock.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"

	"golang.org/x/sys/unix"
)

// orders is the test's /guest.json.
type orders struct {
	// Listener is the URL of the test's HTTP server.
	Listener string
	Command  []string
	Env      []string
}

func main() {
	var err error
	switch {
	case os.Getpid() == 1:
		err = boot()
		if err != nil {
			fmt.Fprintf(os.Stderr, "guest: %v\n", err)
		}
		// With -no-reboot qemu ends here. A restart needs no ACPI, and a power-off does.
		err = unix.Reboot(unix.LINUX_REBOOT_CMD_RESTART)
	case len(os.Args) == 2 && os.Args[1] == "write":
		err = write()
	default:
		err = run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest: %v\n", err)
		os.Exit(1)
	}
}

// boot does the work of an init system. It returns when its child, which runs the command, has
// ended.
func boot() error {
	for _, m := range []struct{ kind, at string }{
		{"proc", "/proc"}, {"sysfs", "/sys"}, {"devtmpfs", "/dev"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"},
	} {
		if err := os.MkdirAll(m.at, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.at, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s: %w", m.at, err)
		}
	}
	if err := unix.Sethostname([]byte("guest")); err != nil {
		return err
	}
	if err := loadModules("/modules"); err != nil {
		return err
	}
	if err := connect(); err != nil {
		return err
	}
	child := exec.Command("/proc/self/exe")
	child.Stdout, child.Stderr = os.Stdout, os.Stderr
	if err := child.Start(); err != nil {
		return err
	}
	// Until an orphan is reaped it stays in its process group, and repolock waits for that.
	for {
		pid, err := unix.Wait4(-1, nil, 0, nil)
		if err != nil && err != unix.EINTR {
			return fmt.Errorf("wait4: %w", err)
		}
		if pid == child.Process.Pid {
			return nil
		}
	}
}

func readOrders() (o orders, err error) {
	raw, err := os.ReadFile("/guest.json")
	if err != nil {
		return o, err
	}
	return o, json.Unmarshal(raw, &o)
}
