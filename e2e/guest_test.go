//go:build linux && programs && minio

package e2e

import (
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// guest is a virtual machine that runs one command. qemu emulates its processor, so the
// test needs no KVM. Its first process is the program in e2e/guest.
type guest struct {
	*listener
	t     *testing.T
	begun time.Time
	// in takes commands in qemu's protocol, QMP. answers has one answer for each.
	in      io.Writer
	answers chan answer
	ended   chan struct{}
}

// answer is qemu's answer to a command. Qemu's events have neither field.
type answer struct{ Return, Error json.RawMessage }

// toHost is where the guest finds a port of this machine's loopback.
const toHost = "10.0.2.2"

// patience is a limit that only a hang reaches.
const patience = 15 * time.Minute

// kernelOptions make the kernel read the time from the HPET, without a check of the timer. On
// a busy machine that check fails, and so does a calibration of the processor's clock. A panic
// ends qemu.
const kernelOptions = "no_timer_check clocksource=hpet panic=-1 quiet console=ttyS0"

// guestFiles are the programs and the kernel modules of a guest, by their names there.
var guestFiles = sync.OnceValues(func() (map[string][]byte, error) {
	dir := filepath.Join(bin, "guest")
	for name, pkg := range map[string]string{"init": "./guest", "repolock": "../cmd/repolock"} {
		build := exec.Command("go", "build", "-ldflags=-s -w", "-o", filepath.Join(dir, name), pkg)
		build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS=linux", "GOARCH=amd64")
		if out, err := build.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
	}
	if out, err := exec.Command("sh", "guest/kernel.sh").CombinedOutput(); err != nil {
		return nil, fmt.Errorf("%w\n%s", err, out)
	}
	names := map[string]string{"init": filepath.Join(dir, "init"), "repolock": filepath.Join(dir, "repolock")}
	modules, err := filepath.Glob("guest/bin/modules/*.ko")
	for _, name := range modules {
		names["modules/"+filepath.Base(name)] = name
	}
	files := map[string][]byte{}
	for at, name := range names {
		if files[at], err = os.ReadFile(name); err != nil {
			return nil, err
		}
	}
	return files, err
})

// startGuest boots a guest that runs a command with an environment.
func startGuest(t *testing.T, env []string, command ...string) *guest {
	t.Helper()
	files, err := guestFiles()
	if err != nil {
		t.Fatal(err)
	}
	g := &guest{listener: listen(t), t: t, answers: make(chan answer, 1), ended: make(chan struct{})}
	orders, err := json.Marshal(struct {
		Listener     string
		Command, Env []string
	}{"http://" + toHost + ":" + g.port, command, env})
	if err != nil {
		t.Fatal(err)
	}
	files = maps.Clone(files)
	files["guest.json"] = orders
	kernel, err := filepath.Abs("guest/bin/vmlinuz")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	console := filepath.Join(dir, "console")
	if err := initramfs(filepath.Join(dir, "initramfs"), files); err != nil {
		t.Fatal(err)
	}

	qemu := exec.Command("qemu-system-x86_64", "-nodefaults", "-no-user-config", "-no-reboot", "-display", "none",
		"-machine", "q35", "-accel", "tcg", "-cpu", "max", "-smp", "1", "-m", "512",
		"-kernel", kernel, "-initrd", "initramfs", "-append", kernelOptions,
		"-serial", "file:console",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net,romfile=",
		"-qmp", "stdio")
	qemu.Dir = dir
	qemu.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	var stderr strings.Builder
	qemu.Stderr = &stderr
	in, err := qemu.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := qemu.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	g.begun = time.Now()
	if err := qemu.Start(); err != nil {
		t.Fatal(err)
	}
	go g.read(out, qemu.Wait)
	t.Cleanup(func() {
		_ = qemu.Process.Kill()
		<-g.ended
		raw, _ := os.ReadFile(console)
		if t.Failed() {
			t.Logf("qemu: %s\nthe guest's console:\n%s", &stderr, raw)
		} else {
			t.Log(said(string(raw)))
		}
	})
	g.in = in
	g.order("qmp_capabilities")
	return g
}

// said returns the lines of a console that repolock and the guest's program have written.
func said(console string) string {
	lines := strings.Split(strings.ReplaceAll(console, "\r", ""), "\n")
	return strings.Join(slices.DeleteFunc(lines, func(l string) bool { return !strings.HasPrefix(l, "repolock: ") && !strings.HasPrefix(l, "guest: ") }), "\n")
}

// read passes on qemu's answers until it ends.
func (g *guest) read(out io.Reader, wait func() error) {
	defer close(g.ended)
	decoder := json.NewDecoder(out)
	for {
		var a answer
		if err := decoder.Decode(&a); err != nil {
			_, _ = io.Copy(io.Discard, out)
			_ = wait()
			return
		}
		if a.Return != nil || a.Error != nil {
			g.answers <- a
		}
	}
}

// order makes qemu execute a command, and waits until it has.
func (g *guest) order(command string) {
	g.t.Helper()
	if _, err := fmt.Fprintf(g.in, `{"execute":%q}`+"\n", command); err != nil {
		g.t.Fatalf("qemu: %v", err)
	}
	select {
	case a := <-g.answers:
		if a.Error != nil {
			g.t.Fatalf("qemu: %s: %s", command, a.Error)
		}
	case <-g.ended:
		g.t.Fatalf("qemu ended before: %s", command)
	case <-time.After(patience):
		g.t.Fatalf("qemu doesn't answer: %s", command)
	}
}

// pause makes the hypervisor stop the guest, and resume makes it continue.
func (g *guest) pause()  { g.t.Helper(); g.order("stop") }
func (g *guest) resume() { g.t.Helper(); g.order("cont") }

// until waits for a condition. It fails the test when the guest ends before.
func (g *guest) until(what string, cond func() bool) {
	g.t.Helper()
	for end := time.Now().Add(patience); !cond(); {
		select {
		case <-g.ended:
			if !cond() {
				g.t.Fatalf("the guest ended before: %s", what)
			}
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(end) {
			g.t.Fatalf("waited %v for: %s", patience, what)
		}
	}
}
