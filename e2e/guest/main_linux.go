// Command guest is the first process of the virtual machine that TestPausedGuest starts.
// It also runs repolock there, and is the command under the lock.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"time"

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

// run runs the command, and reports its exit code to the test.
func run() error {
	o, err := readOrders()
	if err != nil {
		return err
	}
	if _, err := o.report("up", nil); err != nil {
		return err
	}
	var stepping sync.Mutex
	go o.step(&stepping)
	cmd := exec.Command(o.Command[0], o.Command[1:]...)
	cmd.Env = o.Env
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil && !errors.As(err, new(*exec.ExitError)) {
		return err
	}
	_, err = o.report("exit", url.Values{"code": {strconv.Itoa(cmd.ProcessState.ExitCode())}})
	stepping.Lock() // the report of a step comes before the end
	return err
}

// step waits until the test asks for a step of the wall clock, as chrony or an agent in
// the guest does after a pause, and makes it.
func (o orders) step(stepping *sync.Mutex) {
	answer, err := o.report("step", nil)
	if err != nil || answer == "" {
		return
	}
	stepping.Lock()
	defer stepping.Unlock()
	by, err := time.ParseDuration(answer)
	if err == nil {
		ts := unix.NsecToTimespec(time.Now().Add(by).UnixNano())
		err = unix.ClockSettime(unix.CLOCK_REALTIME, &ts)
	}
	if err == nil {
		_, err = o.report("stepped", nil)
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "guest: step the wall clock: %v\n", err)
	}
}

// report sends a message to the test, with the time since the guest's boot, and returns
// the answer.
func (o orders) report(what string, values url.Values) (string, error) {
	var ts unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts); err != nil {
		return "", err
	}
	if values == nil {
		values = url.Values{}
	}
	values.Set("boot", strconv.FormatInt(ts.Nano(), 10))
	answer, err := http.PostForm(o.Listener+"/"+what, values)
	if err != nil {
		return "", err
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err == nil && answer.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", what, answer.Status)
	}
	return string(body), err
}

// write is the command under the lock. It sends a write to the test once a second, by the guest's clock, until the
// answer is "enough".
func write() error {
	o, err := readOrders()
	if err != nil {
		return err
	}
	for beat := time.NewTicker(time.Second); ; <-beat.C {
		if answer, err := o.report("write", nil); err != nil || answer == "enough" {
			return err
		}
	}
}

// loadModules loads all kernel modules of a directory. A module whose dependency isn't
// loaded yet is refused with ENOENT, and tried again after the others.
func loadModules(dir string) error {
	left, err := filepath.Glob(filepath.Join(dir, "*.ko"))
	if err != nil {
		return err
	}
	for len(left) > 0 {
		var refused []string
		for _, name := range left {
			err := loadModule(name)
			switch {
			case errors.Is(err, unix.ENOENT):
				refused = append(refused, name)
			case err != nil && !errors.Is(err, unix.EEXIST):
				return fmt.Errorf("load %s: %w", name, err)
			}
		}
		if len(refused) == len(left) {
			return fmt.Errorf("load %q: a symbol is missing", refused)
		}
		left = refused
	}
	return nil
}

func loadModule(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	return unix.FinitModule(int(f.Fd()), "", 0)
}

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
