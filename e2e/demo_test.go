//go:build linux && programs

package e2e

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/repolock/repolock/internal/test/assert"
)

var demoTo = flag.String("demo", "", "the directory that TestDemo writes the README's drawings into")

// TestDemo records the README's drawings from real runs: restic and rclone with a limited bandwidth, on hosts that are
// Linux namespaces. Each command ends with the right exit code. The new drawings, and the ones in docs, show
// the texts that they are about.
func TestDemo(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		record func(demo) []byte
		texts  []string
	}{
		"demo.svg":  {demo.terminals, []string{"exit code 75", "waiting ", "\ndone", "Killed", "\nfree", `values="visible;hidden"`}},
		"night.svg": {demo.night, []string{"root@web", "root@db", "root@mail", "refused", "removed the stale lock"}},
	} {
		t.Run(name, func(t *testing.T) {
			anew := string(c.record(newDemo(t)))
			drawings := map[string]string{"anew": anew}
			if *demoTo == "" { // else the one in docs is replaced
				drawings["in docs"] = read(t, "../docs/"+name)
			}
			for which, raw := range drawings {
				assert.That(t, len(raw) <= 60<<10, "%s: %d bytes", which, len(raw))
				d := xml.NewDecoder(strings.NewReader(raw))
				var err error
				for err == nil {
					_, err = d.Token()
				}
				assert.That(t, errors.Is(err, io.EOF), "%s: %v", which, err)
				for _, text := range c.texts {
					assert.That(t, strings.Contains(raw, text), "%s: doesn't show %q", which, text)
				}
			}
			if *demoTo != "" && !t.Failed() {
				assert.OK(t, os.WriteFile(filepath.Join(*demoTo, name), []byte(anew), 0o644))
			}
		})
	}
}

// demo is hosts that see the directory of a site as /srv, with a repository and documents to back up.
type demo struct{ *site }

// limit bounds the bandwidth of rclone.
const limit = "--bwlimit 1M"

func newDemo(t *testing.T) demo {
	t.Helper()
	d := demo{newSite(t)}
	for name, kib := range map[string]int{
		"documents/report.pdf": 24 << 10, "mail/inbox": 3 << 10, "remote/data/old/report.pdf": 1, ".config/rclone/rclone.conf": 0,
	} {
		d.write(name, strings.Repeat("\x00", kib<<10))
	}
	d.env = []string{
		"PLACE=" + d.dir, "HOME=/srv", "XDG_CACHE_HOME=", "LC_ALL=C.UTF-8", "TERM=xterm", "INPUTRC=/dev/null", "REPOLOCK_REPO=/srv/remote",
		"RCLONE_CONFIG_REMOTE_TYPE=alias", "RCLONE_CONFIG_REMOTE_REMOTE=/srv/remote/data", "REPOLOCK_AUDIT=/srv/audit.jsonl",
	}
	return d
}

// host returns a command line that runs a command with another host name. The process becomes the command.
func host(name string, command ...string) []string {
	const enter = `hostname "$0" && mount --bind "$PLACE" /srv && cd /srv && export PS1="$0$ " && exec "$@"`
	return append([]string{"unshare", "--map-root-user", "--mount", "--uts", "--", "sh", "-c", enter, name}, command...)
}

// terminals draws two terminals: a backup, a prune that is refused and then waits, and a backup that is
// killed.
func (d demo) terminals() []byte {
	d.env = append(d.env, "RESTIC_REPOSITORY=/srv/remote", "RESTIC_PASSWORD=example")
	random := rand.NewChaCha8([32]byte{})
	for name, mib := range map[string]int{"documents/report.pdf": 24, "mail/inbox": 8} {
		incompressible := make([]byte, mib<<20)
		_, _ = random.Read(incompressible)
		d.write(name, string(incompressible))
	}
	begin := host("web", "restic", "init")
	d.run(exec.Command(begin[0], begin[1:]...)).exits(0)
	web, nas := d.shell("web", 7), d.shell("nas", 32)
	const prune, slowly = "-- restic -q forget --keep-last 1 --prune", "--limit-upload 1024 "
	web.enter("repolock -- restic -q backup " + slowly + "documents")
	f := d.record(web, nas) // the first picture has a command
	d.has("lock.shared")
	nas.enter("repolock status")
	nas.reads(`looked in .*\nnas\$$`)
	nas.enter("repolock " + prune + "; echo \"exit code $?\"")
	nas.reads(`\nexit code 75\nnas\$$`)
	nas.enter("repolock --wait 1h " + prune + " && echo done")
	nas.reads(`\nwaiting `)
	web.reads(`documents\nweb\$$`)
	nas.reads(`\ndone\nnas\$$`)
	web.enter("repolock --ttl 10s -- restic -q backup " + slowly + "mail")
	d.has("lock.shared")
	d.until("restic's own lock", func() bool {
		own, _ := filepath.Glob(d.path("remote/locks/*"))
		return len(own) > 0
	})
	web.kill()
	web.reads(`\nKilled`)
	// restic unlock removes restic's own lock only on the machine that left it.
	web.enter("repolock --wait 1h " + prune + " && echo free")
	web.reads(`\nwaiting `)
	web.reads(`\nfree\nweb\$$`)
	return f.animation()
}

// has waits until there is an object of a kind.
func (d demo) has(kind string) {
	d.t.Helper()
	d.until(kind, func() bool {
		found, _ := filepath.Glob(d.path("remote/index/" + kind + "/*"))
		return len(found) > 0
	})
}

// night draws a night of a minute, in which a second stands for ten minutes: hosts that back up and
// restore side by side, a prune that is refused, one that waits and a backup behind it, and a backup
// that is killed, whose lock the next prune removes.
func (d demo) night() []byte {
	job := func(on, operation string, flags []string, rclone ...string) *process {
		line := slices.Concat([]string{"repolock", operation, "--quiet", "--ttl", "10s"}, flags, []string{"--", "rclone"}, rclone, strings.Fields(limit))
		argv := host(on, line...)
		return d.run(exec.Command(argv[0], argv[1:]...))
	}
	backup := func(on string, mib int, flags ...string) *process {
		from := fmt.Sprintf("night/%s-%d", on, mib)
		d.write(from+"/data", strings.Repeat("\x00", mib<<20))
		return job(on, "backup", flags, "copy", from, "remote:"+from)
	}
	prune := func(mib int, flags ...string) *process {
		kept := fmt.Sprintf("kept-%d", mib)
		d.write(kept+"/data", strings.Repeat("\x00", mib<<20))
		return job("store", "prune", flags, "sync", kept, "remote:kept")
	}
	web := backup("web", 14)
	d.has("lock.shared")
	time.Sleep(2 * time.Second)
	db := backup("db", 6)
	time.Sleep(3 * time.Second)
	mail := backup("mail", 16)
	time.Sleep(2 * time.Second)
	prune(1).exits(75)
	db.exits(0)
	restore := job("db", "restore", nil, "copy", "remote:night/db-6", "restored")
	waits := prune(5, "--wait", "15m")
	d.has("lock.intent")
	late := backup("db", 7, "--wait", "15m")
	for _, p := range []*process{web, restore, mail, waits, late} {
		p.exits(0)
	}
	killed := backup("web", 30)
	d.has("lock.shared")
	time.Sleep(4 * time.Second)
	killed.signal(syscall.SIGKILL)
	killed.exits(-int(syscall.SIGKILL))
	prune(4, "--wait", "15m").exits(0)
	d.start("history", "--svg", d.path("night.svg"), d.path("audit.jsonl")).exits(0)
	return []byte(read(d.t, d.path("night.svg")))
}

// hostShell is a shell on a host, in a terminal.
type hostShell struct {
	*window
	rows int
}

func (d demo) shell(on string, rows int) hostShell {
	d.t.Helper()
	h := hostShell{d.terminal(on, columns, rows+1, host(on, "bash", "--norc", "--noprofile", "-i")), rows}
	h.reads("^" + on + `\$$`)
	return h
}

// enter types a command, a few letters at a time.
func (h hostShell) enter(command string) {
	h.s.t.Helper()
	for typed := range slices.Chunk([]byte(command), 12) {
		if last := len(typed) - 1; typed[last] == ';' { // tmux would end its own command there
			typed = append(typed[:last:last], `\;`...)
		}
		h.tmux("send-keys", "-l", "--", string(typed))
		time.Sleep(120 * time.Millisecond)
	}
	h.key("Enter")
}

// reads waits until the screen matches.
func (h hostShell) reads(pattern string) {
	h.s.t.Helper()
	h.s.until(fmt.Sprintf("%q on the screen of %s", pattern, h.name), func() bool { return regexp.MustCompile(pattern).MatchString(h.screen()) })
}

// kill kills the command that the shell runs, and nothing else, as kill -9 does.
func (h hostShell) kill() {
	h.s.t.Helper()
	shell := strings.TrimSpace(h.tmux("display-message", "-p", "#{pane_pid}"))
	children := strings.Fields(read(h.s.t, "/proc/"+shell+"/task/"+shell+"/children"))
	assert.Equal(h.s.t, len(children), 1, "processes of %s", h.name)
	assert.OK(h.s.t, exec.Command("kill", "-9", children[0]).Run())
}

// film is a recording of shells.
type film struct {
	shells   []hostShell
	pictures []picture
	end      chan struct{} // closed to end the recording
	ended    chan struct{}
}

// picture is the rows of all screens from a time on.
type picture struct {
	at   time.Time
	rows []string
}

// record notes each change of the screens, until animation. It looks at the screens once more after that.
func (d demo) record(shells ...hostShell) *film {
	f := &film{shells: shells, end: make(chan struct{}), ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for last := false; !last; time.Sleep(20 * time.Millisecond) {
			last = closed(f.end)
			var rows []string
			for _, h := range shells {
				out, err := h.command("capture-pane", "-p").Output()
				if err != nil { // the test has failed
					return
				}
				screen := append(strings.Split(string(out), "\n"), make([]string, h.rows)...)
				for _, row := range screen[:h.rows] { // tmux can have one more
					rows = append(rows, strings.TrimRight(row, " "))
				}
			}
			if n := len(f.pictures); n == 0 || !slices.Equal(rows, f.pictures[n-1].rows) {
				f.pictures = append(f.pictures, picture{time.Now(), rows})
			}
		}
	}()
	return f
}

const columns = 80

// The drawing's measures, in pixels.
const (
	letter  = 8.43 // of a monospace font of 14 pixels
	height  = 18
	margin  = 12
	caption = 26
	width   = 2*margin + columns*letter
)

// pause is the longest time in which nothing changes: longer ones are cut.
const pause = 900 * time.Millisecond

// lastStay is how long the last screens stay.
const lastStay = 5 * time.Second

// animation draws the terminals one below the other, as they were. It begins anew at its end. A
// program that doesn't animate shows the last screens.
func (f *film) animation() []byte {
	close(f.end)
	<-f.ended
	last := len(f.pictures) - 1
	times := make([]time.Duration, last+2) // of the drawing, by picture; then its length
	for i := range last {
		times[i+1] = times[i] + min(f.pictures[i+1].at.Sub(f.pictures[i].at), pause)
	}
	total := times[last] + lastStay
	times[last+1] = total
	var body, drawing bytes.Buffer
	var words []string // for readers who don't see the drawing
	y, above := 0, 0
	for _, h := range f.shells {
		y += caption
		fmt.Fprintf(&body, "<text class=\"c\" x=\"%d\" y=\"%d\">%s</text>\n", margin, y-8, h.name)
		rows := h.rows
		for !slices.ContainsFunc(f.pictures, func(p picture) bool { return p.rows[above+rows-1] != "" }) {
			rows--
		}
		fmt.Fprintf(&body, "<rect x=\"1\" y=\"%d\" width=\"%.0f\" height=\"%d\" rx=\"6\" fill=\"#f6f8fa\"/>\n", y, width-2, rows*height+margin)
		for row := range rows {
			is := func(picture int) string { return f.pictures[picture].rows[above+row] }
			if text := is(last); text != "" && text != h.name+"$" {
				words = append(words, text)
			}
			for from, to := 0, 0; from <= last; from = to {
				for to = from + 1; to <= last && is(to) == is(from); to++ {
				}
				// What is shown for less than a twentieth of a second was being drawn.
				if is(from) != "" && times[to]-times[from] >= 50*time.Millisecond {
					draw(&body, y+(row+1)*height, is(from), h.name+"$ ", times[from], times[to], total)
				}
			}
		}
		y, above = y+rows*height+margin, above+h.rows
	}
	y += margin
	fmt.Fprintf(&drawing, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %.0f %d" width="%.0f" height="%d" fill="#1f2328" font-family="monospace" font-size="14" xml:space="preserve">
<title>Two terminals under repolock</title>
<desc>%s</desc>
<style>
svg{font:14px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
text{white-space:pre;fill:#1f2328}rect{fill:#f6f8fa;stroke:#d1d9e0}.c{fill:#59636e}.p{fill:#1a7f37}
@media(prefers-color-scheme:dark){text{fill:#e6edf3}rect{fill:#161b22;stroke:#3d444d}.c{fill:#9198a1}.p{fill:#3fb950}}
</style>
%s</svg>
`, width, y, width, y, html.EscapeString(strings.Join(words, "\n")), body.String())
	return drawing.Bytes()
}

// draw draws a row that is shown for a time.
func draw(b *bytes.Buffer, y int, row, prompt string, from, to, total time.Duration) {
	at := func(d time.Duration) string {
		return strings.TrimPrefix(fmt.Sprintf("%.4f", d.Seconds()/total.Seconds()), "0")
	}
	times, values := "0;"+at(from)+";"+at(to), "hidden;visible;hidden"
	if from == 0 { // some programs show the value at 0 although its time has no length
		times, values = "0;"+at(to), "visible;hidden"
	}
	text := html.EscapeString(row)
	if after, is := strings.CutPrefix(row+" ", prompt); is {
		text = `<tspan class="p">` + prompt + `</tspan>` + html.EscapeString(strings.TrimSpace(after))
	}
	hidden := ` visibility="hidden"`
	if to == total { // a program that doesn't animate shows it
		hidden = ""
	}
	fmt.Fprintf(b, "<text x=\"%d\" y=\"%d\"%s>%s<animate attributeName=\"visibility\" dur=\"%.1fs\" repeatCount=\"indefinite\" calcMode=\"discrete\" values=\"%s\" keyTimes=\"%s\"/></text>\n",
		margin, y, hidden, text, total.Seconds(), values, times)
}
