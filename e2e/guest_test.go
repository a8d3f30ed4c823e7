//go:build linux && minio && programs

package e2e

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"

	"github.com/repolock/repolock/internal/test/assert"
	"github.com/repolock/repolock/internal/test/miniotest"
	"github.com/repolock/repolock/internal/test/proxy"
)

const (
	// lookEvery is how often a holder looks at its own objects, whatever the ttl.
	lookEvery = 10 * time.Second
	// stopWithin is how soon the guard notices a step of the wall clock.
	stopWithin = time.Second
	// slack is the number of writes that can be under way when the pause begins, and while the command is being
	// stopped. The guest's command writes once a second by the guest's clock, so a slow machine has no more of
	// them.
	slack = 3
)

// TestPausedGuest: a hypervisor pauses a machine that holds a shared lock. It resumes the
// machine when the lock has expired, and a prune on another machine holds the exclusive
// lock. No clock in the guest counts the pause. The guest's command stops at the next look
// of its holder, or, if the guest's wall clock is stepped, at the step.
func TestPausedGuest(t *testing.T) {
	t.Run("not stepped", func(t *testing.T) {
		t.Parallel()
		p := newPausedGuest(t)
		p.lose(false)
		most := int((lookEvery+p.waited)/time.Second) + slack
		n := len(p.beside)
		assert.That(t, n <= most, "the guest wrote %d times beside the prune, want at most %d", n, most)
	})
	t.Run("stepped", func(t *testing.T) {
		t.Parallel()
		p := newPausedGuest(t)
		p.lose(true)
		n := 0
		for _, m := range p.beside {
			if m.boot > p.heard("stepped")[0].boot {
				n++
			}
		}
		t.Logf("%d writes came after the step of the guest's wall clock", n)
		most := int(stopWithin/time.Second) + slack
		assert.That(t, n <= most, "the guest wrote %d times after the step of its wall clock, want at most %d", n, most)
	})
	t.Run("kept", func(t *testing.T) {
		t.Parallel()
		newPausedGuest(t).keep()
	})
}

// guestTTL is the ttl of the guest's lock. By default the refresh comes 20 s after the look.
var guestTTL = cmp.Or(os.Getenv("REPOLOCK_GUEST_TTL"), "60s")

// pausedGuest is a guest whose command holds a shared lock and writes.
type pausedGuest struct {
	*guest
	s      *site
	client *minio.Client // one for all looks, since each client has connections
	bucket string
	front  *proxy.Proxy // which the guest takes for the store
	// beside are the guest's writes while the prune ran. Of the time from the resume to the
	// command's end, the guest waited for the store's answers for waited.
	beside []message
	waited time.Duration
}

func newPausedGuest(t *testing.T) *pausedGuest {
	t.Helper()
	server := miniotest.Shared(t)
	at := place{onS3, server, server.Bucket()}
	front := proxied(t, server, proxy.Behaviour{})
	_, port, _ := strings.Cut(front.Host(), ":")
	env := []string{"HOME=/tmp", "REPOLOCK_CONFIG=", "REPOLOCK_REPO=" + at.url(toHost+":"+port, at.bucket)}
	for name, value := range credentials {
		env = append(env, name+"="+value)
	}
	p := &pausedGuest{s: at.site(t), client: server.Client(), bucket: at.bucket, front: front}
	p.guest = startGuest(t, env, "/repolock", "backup", "--ttl", guestTTL, "--", "/init", "write")
	p.until("the guest's first write", func() bool { return len(p.heard("write")) > 0 })
	t.Logf("the guest is up after %.1f s, and writes after %.1f s",
		p.heard("up")[0].at.Sub(p.begun).Seconds(), p.heard("write")[0].at.Sub(p.begun).Seconds())
	return p
}

// lose has the guest lose its lock in a pause. The pause begins right after a refresh, when
// the guest's next request is farthest away.
func (p *pausedGuest) lose(step bool) {
	p.t.Helper()
	p.refreshed()
	p.pause()
	paused, before := time.Now(), last(p.heard("write"))

	prune := p.s.start(append([]string{"prune", "--wait", hang.String()}, ticks("prune")...)...)
	p.until("the prune to run", func() bool { return len(p.s.times("prune")) > 0 })
	p.front.Take()
	p.resume()
	resumed := time.Now()
	if step {
		p.step <- resumed.Sub(paused)
	}
	exit := p.exit(79)
	for _, r := range p.front.Take() {
		p.waited += r.End.Sub(r.Start)
	}
	assert.That(p.t, !prune.ended(), "the prune ended before the guest's command")
	prune.end("prune")

	times := p.s.times("prune")
	for _, m := range p.heard("write") {
		if m.at.After(times[0]) && m.at.Before(times[len(times)-1]) {
			p.beside = append(p.beside, m)
		}
	}
	pause, uncounted := resumed.Sub(paused), exit.at.Sub(before.at)-(exit.boot-before.boot)
	p.t.Logf("the guest is paused for %.1f s, and its CLOCK_BOOTTIME leaves out %.1f s", pause.Seconds(), uncounted.Seconds())
	p.t.Logf("it writes %d times beside the prune; repolock exits with %d %.1f s after the resume, having waited for the store for %.2f s",
		len(p.beside), exit.code, exit.at.Sub(resumed).Seconds(), p.waited.Seconds())
	assert.That(p.t, uncounted >= pause/2, "the guest's clock counts the pause: nothing was tested")
}

// keep pauses the guest for less than its lease, and steps its wall clock. No other holder
// comes, so it must keep its lock. A resumed lock would have another key.
func (p *pausedGuest) keep() {
	p.t.Helper()
	p.refreshed()
	key, _, _ := strings.Cut(p.lock(), " ")
	p.pause()
	paused := time.Now()
	time.Sleep(5 * time.Second) // these must not disturb the guest
	p.resume()
	p.step <- time.Since(paused)
	p.until("the step of the guest's wall clock", func() bool { return len(p.heard("stepped")) > 0 })
	p.refreshed()
	writes := len(p.heard("write"))
	p.until("writes after a refresh", func() bool { return len(p.heard("write")) >= writes+10 })
	assert.That(p.t, strings.HasPrefix(p.lock(), key+" "), "the lock was lost and resumed: it was %s, and is %s", key, p.lock())
	p.end()
	p.exit(0)
	p.s.nothingLeft()
}

// refreshed waits for a refresh of the guest's lock.
func (p *pausedGuest) refreshed() {
	p.t.Helper()
	before := p.lock()
	p.until("a refresh of the guest's lock", func() bool { return p.lock() != before })
}

// lock is the key and the ETag of the guest's lock.
func (p *pausedGuest) lock() (text string) {
	p.t.Helper()
	opts := minio.ListObjectsOptions{Recursive: true, Prefix: "some/prefix/index/lock.shared/"}
	for o := range p.client.ListObjects(p.t.Context(), p.bucket, opts) {
		assert.OK(p.t, o.Err)
		text += o.Key + " " + o.ETag + "\n"
	}
	return text
}

// exit waits for the exit code of repolock in the guest, and for the guest's end.
func (p *pausedGuest) exit(want int) message {
	p.t.Helper()
	p.until("the guest's command to end", func() bool { return len(p.heard("exit")) > 0 })
	<-p.ended
	exit := last(p.heard("exit"))
	assert.That(p.t, exit.code == want, "repolock exits with %d in the guest, want %d", exit.code, want)
	return exit
}

func last(of []message) message { return of[len(of)-1] }

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
	assert.OK(t, err)
	g := &guest{listener: listen(t), t: t, answers: make(chan answer, 1), ended: make(chan struct{})}
	orders, err := json.Marshal(struct {
		Listener     string
		Command, Env []string
	}{"http://" + toHost + ":" + g.port, command, env})
	assert.OK(t, err)
	files = maps.Clone(files)
	files["guest.json"] = orders
	kernel, err := filepath.Abs("guest/bin/vmlinuz")
	assert.OK(t, err)
	dir := t.TempDir()
	assert.OK(t, initramfs(filepath.Join(dir, "initramfs"), files))

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
	assert.OK(t, err)
	out, err := qemu.StdoutPipe()
	assert.OK(t, err)
	g.begun = time.Now()
	assert.OK(t, qemu.Start())
	go g.read(out, qemu.Wait)
	t.Cleanup(func() {
		_ = qemu.Process.Kill()
		<-g.ended
		if t.Failed() {
			raw, _ := os.ReadFile(filepath.Join(dir, "console"))
			t.Logf("qemu: %s\nthe guest's console:\n%s", &stderr, raw)
		}
	})
	g.in = in
	g.order("qmp_capabilities")
	return g
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
	_, err := fmt.Fprintf(g.in, `{"execute":%q}`+"\n", command)
	assert.Need(g.t, err == nil, "qemu: %v", err)
	select {
	case a := <-g.answers:
		assert.Need(g.t, a.Error == nil, "qemu: %s: %s", command, a.Error)
	case <-g.ended:
		g.t.Fatalf("qemu ended before: %s", command)
	case <-time.After(hang):
		g.t.Fatalf("qemu doesn't answer: %s", command)
	}
}

// pause makes the hypervisor stop the guest, and resume makes it continue.
func (g *guest) pause()  { g.t.Helper(); g.order("stop") }
func (g *guest) resume() { g.t.Helper(); g.order("cont") }

// until waits for a condition, which holds before the guest ends if it ever does.
func (g *guest) until(what string, cond func() bool) { g.t.Helper(); waitFor(g.t, what, g.ended, cond) }

// message is a report of the guest.
type message struct {
	what string
	at   time.Time     // by this machine's clock
	boot time.Duration // CLOCK_BOOTTIME of the guest
	code int           // of an exit
}

// listener is the HTTP server that the guest reports to.
type listener struct {
	port string
	step chan time.Duration // the guest steps its wall clock by it

	mu       sync.Mutex
	messages []message
	enough   bool
}

func listen(t *testing.T) *listener {
	t.Helper()
	l := &listener{step: make(chan time.Duration, 1)}
	s := httptest.NewServer(l)
	t.Cleanup(func() {
		s.CloseClientConnections()
		s.Close()
	})
	_, l.port, _ = net.SplitHostPort(s.Listener.Addr().String())
	return l
}

// ServeHTTP notes a message. It answers the guest's request for a step when the test wants
// one, which might be never.
func (l *listener) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	at := time.Now()
	boot, err := strconv.ParseInt(r.FormValue("boot"), 10, 64)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	m := message{what: path.Base(r.URL.Path), at: at, boot: time.Duration(boot)}
	m.code, _ = strconv.Atoi(r.FormValue("code"))
	l.mu.Lock()
	l.messages = append(l.messages, m)
	enough := l.enough
	l.mu.Unlock()
	switch {
	case m.what == "step":
		select {
		case by := <-l.step:
			_, _ = io.WriteString(w, by.String())
		case <-r.Context().Done():
		}
	case m.what == "write" && enough:
		_, _ = io.WriteString(w, "enough")
	}
}

// heard returns the messages of one kind, in the order in which they came.
func (l *listener) heard(what string) (of []message) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, m := range l.messages {
		if m.what == what {
			of = append(of, m)
		}
	}
	return of
}

// end lets the guest's command end.
func (l *listener) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.enough = true
}

// initramfs writes a kernel's first root file system, all of whose files can be executed.
// The kernel's Documentation/driver-api/early-userspace/buffer-format.rst describes the
// format, cpio's "newc".
func initramfs(name string, files map[string][]byte) error {
	var b bytes.Buffer
	dirs := map[string]bool{}
	for _, at := range slices.Sorted(maps.Keys(files)) {
		if dir := path.Dir(at); dir != "." && !dirs[dir] {
			dirs[dir] = true
			cpio(&b, dir, 0o040755, nil)
		}
		cpio(&b, at, 0o100755, files[at])
	}
	cpio(&b, "TRAILER!!!", 0, nil)
	return os.WriteFile(name, b.Bytes(), 0o600)
}

// cpio appends one file. Its header and its content end at multiples of four bytes.
func cpio(b *bytes.Buffer, name string, mode int, content []byte) {
	const inode, uid, gid, links, mtime, major, minor, rmajor, rminor, check = 0, 0, 0, 1, 0, 0, 0, 0, 0, 0
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%s\x00", inode, mode, uid, gid, links, mtime,
		len(content), major, minor, rmajor, rminor, len(name)+1, check, name)
	pad(b)
	b.Write(content)
	pad(b)
}

func pad(b *bytes.Buffer) { b.Write(make([]byte, -b.Len()&3)) }
